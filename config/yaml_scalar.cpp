#include <algorithm>
#include <array>
#include <charconv>

#include "config/document.h"

namespace qtrain {
namespace {

constexpr std::array<std::string_view, 9> kTrueWords{"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"};
constexpr std::array<std::string_view, 9> kFalseWords{"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"};

bool among(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The number that the whole text is, if it is one.
template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

/// Digits of numbers may be set apart by underscores.
std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

}  // namespace

Json yaml_plain_value(std::string_view text) {
  if (among(text, kTrueWords)) return true;
  if (among(text, kFalseWords)) return false;
  const bool numeric = text.find_first_not_of("+-0123456789_.eE") == std::string_view::npos;
  if (!numeric || text.empty() || text[0] == '_') return std::string(text);
  std::string digits = without_underscores(text);
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.erase(0, 1);
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  const bool octal = digits.size() > first + 1 && digits[first] == '0' &&
                     digits.find_first_not_of("0123456789", first) == std::string::npos;
  if (octal) return std::string(text);  // what it means depends on who reads it
  if (const auto n = whole_number<std::int64_t>(digits)) return *n;
  if (const auto x = whole_number<double>(digits)) return *x;
  return std::string(text);
}

}  // namespace qtrain
