#include "optim/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"

namespace qtrain {
namespace {

[[noreturn]] void refuse(std::string cause, std::string remedy) {
  fail(ErrorKind::usage, {.cause = std::move(cause), .place = "optim_args", .remedy = std::move(remedy)});
}

std::string without_spaces(std::string_view text) {
  std::string out(text);
  std::erase(out, ' ');
  return out;
}

}  // namespace

OptimizerArguments::OptimizerArguments(std::string_view text) {
  const std::string all = without_spaces(text);
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size()), equals = all.find('=', begin);
    const std::string pair = all.substr(begin, end - begin);
    if (equals >= end || equals == begin || std::count(pair.begin(), pair.end(), '=') != 1)
      refuse(fmt::format("\"{}\" is not key=value", pair), "for example \"momentum=0.9,nesterov=true\"");
    const std::string key = all.substr(begin, equals - begin);
    if (find(key)) refuse(fmt::format("\"{}\" is given twice", key), "keep one of them");
    values_.emplace_back(key, all.substr(equals + 1, end - equals - 1));
    begin = end + 1;
  }
  if (all.ends_with(',')) refuse("ends with a comma", "for example \"momentum=0.9,nesterov=true\"");
}

void OptimizerArguments::allow(std::string_view optimizer, std::span<const std::string_view> keys) const {
  for (const auto& [key, value] : values_)
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      refuse(fmt::format("optim {} has no argument \"{}\"", optimizer, key),
             keys.empty()
                 ? "it takes none; adam_beta1, adam_beta2, adam_epsilon and weight_decay are keys of the config"
                 : fmt::format("it takes {}", fmt::join(keys, ", ")));
}

std::string OptimizerArguments::text() const {
  std::vector<std::string> words;
  for (const auto& [key, value] : values_) {
    double number = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && stop == value.data() + value.size();
    words.push_back(whole ? fmt::format("{}={}", key, number) : fmt::format("{}={}", key, value));
  }
  std::sort(words.begin(), words.end());
  return fmt::format("{}", fmt::join(words, ", "));
}

const std::string* OptimizerArguments::find(std::string_view key) const {
  for (const auto& [name, value] : values_)
    if (name == key) return &value;
  return nullptr;
}

double OptimizerArguments::number(std::string_view key, double otherwise) const {
  const std::string* text = find(key);
  if (!text) return otherwise;
  double value = 0;
  const char *begin = text->data(), *end = begin + text->size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || !(value >= 0) || !std::isfinite(value))
    refuse(fmt::format("\"{}\" is \"{}\"", key, *text), "use a number that is at least 0");
  return value;
}

bool OptimizerArguments::flag(std::string_view key, bool otherwise) const {
  const std::string* text = find(key);
  if (!text) return otherwise;
  std::string lower = *text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"true", "1", "yes"})
    if (lower == yes) return true;
  for (const char* no : {"false", "0", "no"})
    if (lower == no) return false;
  refuse(fmt::format("\"{}\" is \"{}\"", key, *text), "use true or false");
}

std::string_view OptimizerArguments::choice(std::string_view key, std::span<const std::string_view> choices) const {
  const std::string* text = find(key);
  if (!text) return choices.front();
  const auto found = std::find(choices.begin(), choices.end(), *text);
  if (found == choices.end())
    refuse(fmt::format("\"{}\" is \"{}\"", key, *text), fmt::format("use one of {}", fmt::join(choices, ", ")));
  return *found;
}

}  // namespace qtrain
