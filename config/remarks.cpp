#include "config/remarks.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/config.h"
#include "config/fields.h"
#include "core/secrets.h"
#include "core/utf8.h"

namespace qtrain {

void Diagnostics::say(Remark remark) {
  const auto same = [&](const Remark& said) {
    return said.level == remark.level && said.origin == remark.origin && said.text == remark.text &&
           said.ignored == remark.ignored;
  };
  if (std::ranges::none_of(remarks_, same)) remarks_.push_back(std::move(remark));
}

void Diagnostics::problem(std::string origin, std::string cause, std::string remedy) {
  say({.level = RemarkLevel::problem,
       .origin = std::move(origin),
       .text = std::move(cause),
       .remedy = std::move(remedy)});
}

void Diagnostics::retract(const std::string& key) {
  std::erase_if(remarks_, [&](const Remark& said) { return !key.empty() && said.key == key; });
}

std::size_t Diagnostics::count_problems() const {
  return static_cast<std::size_t>(std::ranges::count(remarks_, RemarkLevel::problem, &Remark::level));
}

std::vector<ErrorText> Diagnostics::problems() const {
  std::vector<ErrorText> out;
  for (const Remark& r : remarks_)
    if (r.level == RemarkLevel::problem) out.push_back({.cause = r.text, .place = r.origin, .remedy = r.remedy});
  return out;
}

Json Diagnostics::ignored() const {
  Json out = Json::object();
  for (const Remark& r : remarks_)
    if (!r.ignored.empty()) out[r.ignored] = entry_of(r);
  return out;
}

bool Diagnostics::ignores(const std::string& key) const {
  return std::ranges::find(remarks_, key, &Remark::ignored) != remarks_.end();
}

std::vector<std::string> Diagnostics::lines(RemarkLevel level) const {
  std::vector<std::string> out;
  for (const Remark& r : remarks_)
    if (r.level == level) out.push_back(line_of(r));
  return out;
}

std::string line_of(const Remark& r) {
  const std::string place = r.origin.empty() ? "" : r.origin + ": ";
  const std::string text =
      r.ignored.empty() ? place + r.text : fmt::format("{}\"{}\" has no effect: {}", place, r.ignored, r.text);
  return without_credentials(one_line(text));
}

Json entry_of(const Remark& r) {
  return {{"value", redacted(r.ignored, r.value)}, {"origin", r.origin}, {"reason", r.text}};
}

Remark ignored_key(const ResolvedConfig& config, const std::string& key, const std::string& reason) {
  return {.origin = config.origin.at(key), .text = reason, .ignored = key, .value = values_json(config.value).at(key)};
}

void no_effect(ResolvedConfig& config, const std::string& key, const std::string& reason) {
  if (config.given(key)) config.diagnostics.say(ignored_key(config, key, reason));
}

void fail_with(const std::vector<ErrorText>& problems, const std::string& place) {
  if (problems.size() == 1) fail(ErrorKind::usage, problems[0]);
  constexpr std::size_t kMaxListed = 50;
  std::string cause = fmt::format("{} problems", problems.size());
  for (std::size_t i = 0; i < std::min(problems.size(), kMaxListed); ++i)
    cause += "\n" + std::string(Error(ErrorKind::usage, problems[i]).what());
  if (problems.size() > kMaxListed) cause += fmt::format("\nand {} more", problems.size() - kMaxListed);
  fail(ErrorKind::usage, {.cause = cause, .place = place});
}

void tell_remarks(const ResolvedConfig& config, Log& log) {
  for (const std::string& note : config.diagnostics.notes()) log.info("{}", note);
  for (const std::string& warning : config.diagnostics.warnings()) log.warn("{}", warning);
}

}  // namespace qtrain
