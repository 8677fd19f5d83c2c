#include "app/cli/arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/keys.h"
#include "core/secrets.h"
#include "core/utf8.h"

namespace qtrain {
namespace {

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

/// The "key" of "key=value" if it can be a config key, else empty.
std::string_view override_key(std::string_view word) {
  const auto at = word.find('=');
  if (at == std::string_view::npos || at == 0) return {};
  const auto key = word.substr(0, at);
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '$';
  };
  return std::all_of(key.begin(), key.end(), plain) && key.front() != '.' && key.back() != '.' ? key
                                                                                               : std::string_view{};
}

[[noreturn]] void refuse(const Command& command, std::string cause, std::string remedy = {}) {
  if (remedy.empty()) remedy = fmt::format("see qtrain {} --help", command.name);
  fail(ErrorKind::usage, {.cause = std::move(cause), .place = {}, .remedy = std::move(remedy)});
}

bool is_choice(std::string_view choices, std::string_view value) {
  for (std::size_t begin = 0; begin <= choices.size();) {
    const auto end = std::min(choices.find('|', begin), choices.size());
    if (choices.substr(begin, end - begin) == value) return true;
    begin = end + 1;
  }
  return false;
}

/// Whether the flag's value is a path.
bool is_path(const Flag& flag) {
  return flag.value.find("DIR") != flag.value.npos || flag.value.find("FILE") != flag.value.npos;
}

void check_value(const Command& command, const Flag& flag, const std::string& value) {
  const auto wants = [&](std::string_view what) {
    refuse(command, fmt::format("--{} must be {}, not \"{}\"", flag.name, what, value));
  };
  if (is_path(flag) && value.empty()) wants("a path");
  if (flag.kind == FlagKind::integer && !parse_number<std::int64_t>(value)) wants("an integer");
  if (flag.kind == FlagKind::number && !std::isfinite(parse_number<double>(value).value_or(NAN))) wants("a number");
  if (flag.kind == FlagKind::choice && !is_choice(flag.value, value)) wants("one of " + std::string(flag.value));
}

}  // namespace

Arguments::Arguments(const Command& command, std::span<const std::string> words, std::shared_ptr<Log> log)
    : command_(&command), log_(std::move(log)) {
  bool flags_end = false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (!flags_end && word == "--")
      flags_end = true;
    else if (!flags_end && word.size() > 1 && word.starts_with("-") && !parse_number<double>(word))
      take_flag(words, at);
    else
      take_operand(word);
  }
  if (has("help")) return;
  if (command.overrides)  // these flags are also config keys
    for (const char* flag : {"device", "threads"})
      if (const auto it = values_.find(flag); it != values_.end()) overrides_.emplace_back(flag, it->second.back());
  if (operands_.size() < static_cast<std::size_t>(command.min_operands))
    refuse(command, fmt::format("qtrain {} needs {}", command.name, command.operands));
}

const Flag* Arguments::find(std::string_view name) const {
  for (const auto* flags : {&command_->flags, &command_->idle_flags})
    for (const Flag& f : *flags)
      if (f.name == name) return &f;
  return nullptr;
}

void Arguments::take_flag(std::span<const std::string> words, std::size_t& at) {
  const std::string& word = words[at];
  const auto equals = word.find('=');
  std::string name = word.substr(0, equals);
  name.erase(0, name.starts_with("--") ? 2 : 1);
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "h") name = "help";
  const Flag* flag = find(name);
  if (!flag) {
    std::vector<std::string_view> names;
    for (const Flag& f : command_->flags) names.push_back(f.name);
    const auto near = nearest(name, names);
    std::string remedy = near.empty() ? "" : fmt::format("did you mean --{}?", near);
    if (near.empty() && command_->overrides && is_config_key(name))
      remedy = fmt::format("set config keys as {}=VALUE", name);
    refuse(*command_, fmt::format("qtrain {} has no flag {}", command_->name, word.substr(0, equals)), remedy);
  }
  const bool alone = flag->kind == FlagKind::file_or_stdout && equals == std::string::npos &&
                     (at + 1 == words.size() || words[at + 1].starts_with("-"));
  if (flag->kind == FlagKind::present || alone) {
    if (equals != std::string::npos) refuse(*command_, fmt::format("--{} takes no value", flag->name));
    values_[std::string(flag->name)];
    return;
  }
  std::string value;
  if (equals != std::string::npos)
    value = word.substr(equals + 1);
  else if (at + 1 < words.size())
    value = words[++at];
  else
    refuse(*command_, fmt::format("--{} needs a value ({})", flag->name, flag->value));
  check_value(*command_, *flag, value);
  auto& values = values_[std::string(flag->name)];
  if (flag->kind != FlagKind::repeated) values.clear();
  values.push_back(std::move(value));
}

void Arguments::take_operand(const std::string& word) {
  const auto key = override_key(word);
  const bool begun = !operands_.empty() || command_->max_operands == 0;  // the first operand may be a path with "="
  if (command_->overrides && begun && !key.empty()) {
    overrides_.emplace_back(key, word.substr(key.size() + 1));
    return;
  }
  if (operands_.size() == static_cast<std::size_t>(command_->max_operands))
    refuse(*command_,
           fmt::format("qtrain {}: unexpected argument \"{}\"", command_->name, redacted("", word).get<std::string>()));
  operands_.push_back(word);
}

const std::string& Arguments::operand(std::size_t index) const {
  check(index < operands_.size(), "a command reads an operand that it does not require");
  return operands_[index];
}

std::optional<std::string> Arguments::text(std::string_view flag) const {
  check(find(flag) != nullptr, "a command reads a flag that it does not have");
  const auto it = values_.find(flag);
  if (it == values_.end() || it->second.empty()) return {};
  return it->second.back();
}

std::optional<std::int64_t> Arguments::integer(std::string_view flag) const {
  const auto value = text(flag);
  return value ? parse_number<std::int64_t>(*value) : std::nullopt;
}

std::optional<double> Arguments::number(std::string_view flag) const {
  const auto value = text(flag);
  return value ? parse_number<double>(*value) : std::nullopt;
}

std::vector<std::string> Arguments::all(std::string_view flag) const {
  check(find(flag) != nullptr, "a command reads a flag that it does not have");
  const auto it = values_.find(flag);
  return it == values_.end() ? std::vector<std::string>{} : it->second;
}

void Arguments::replace(std::string_view flag, std::size_t index, std::string value) {
  values_.find(flag)->second.at(index) = std::move(value);
}

bool Arguments::json() const {
  const auto it = values_.find("json");
  return it != values_.end() && it->second.empty();
}

std::string written_result(const std::string& text, ResultText what) {
  if (what == ResultText::people) return printable(without_credentials(text));
  return ::isatty(STDOUT_FILENO) == 1 ? printable(text) : text;
}

void Arguments::give(const CommandResult& result) const {
  if (!result.text.empty())
    log_->result_stream(written_result(result.text + (result.text.ends_with('\n') ? "" : "\n"), result.what));
  log_->document(dump_json(result.json));
}

std::string Arguments::required(std::string_view flag) const {
  const auto value = text(flag);
  if (!value) refuse(*command_, fmt::format("qtrain {} needs --{} {}", command_->name, flag, find(flag)->value));
  return *value;
}

}  // namespace qtrain
