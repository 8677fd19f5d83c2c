#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/module_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <charconv>
#include <memory>

#include "core/error.h"

namespace qtrain {
namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// A module name has some forty characters: a pattern that takes more steps than this is a mistake or an attack.
constexpr std::uint32_t kSteps = 100'000;
constexpr std::size_t kLongest = 10'000;

[[noreturn]] void refuse(const std::string& pattern, const std::string& why) {
  fail(ErrorKind::usage, {.cause = fmt::format("the module pattern \"{}\" {}", pattern.substr(0, 200), why),
                          .remedy = "give the names of the modules instead"});
}

Owned<pcre2_code> compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  if (pattern.size() > kLongest) refuse(pattern, "is too long");
  const auto* text = reinterpret_cast<PCRE2_SPTR>(pattern.data());
  Owned<pcre2_code> code(pcre2_compile(text, pattern.size(), PCRE2_UTF, &error, &at, nullptr));
  if (!code) refuse(pattern, fmt::format("is not a valid regular expression (at character {})", at + 1));
  return code;
}

/// Matches at the beginning of a module name.
class Matcher {
 public:
  explicit Matcher(const std::string& pattern)
      : pattern_(pattern),
        code_(compile(pattern)),
        data_(pcre2_match_data_create_from_pattern(code_.get(), nullptr)),
        limits_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !limits_) throw std::bad_alloc();
    pcre2_set_match_limit(limits_.get(), kSteps);
  }

  bool matches(std::string_view module, std::uint32_t options) {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0,
                                  PCRE2_ANCHORED | options, data_.get(), limits_.get());
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) refuse(pattern_, "takes too many steps to match");
    return found >= 0;
  }

  /// The text that a group matched in the last match.
  std::string_view group(const char* name, std::string_view module) const {
    const int number = pcre2_substring_number_from_name(code_.get(), reinterpret_cast<PCRE2_SPTR>(name));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get()) + std::ptrdiff_t{2} * number;
    return module.substr(ends[0], ends[1] - ends[0]);
  }

 private:
  const std::string& pattern_;
  Owned<pcre2_code> code_;
  Owned<pcre2_match_data> data_;
  Owned<pcre2_match_context> limits_;
};

}  // namespace

bool matches_whole(const std::string& pattern, std::string_view module) {
  return Matcher(pattern).matches(module, PCRE2_ENDANCHORED);
}

std::optional<std::int64_t> number_in(const std::string& pattern, std::string_view module) {
  Matcher matcher(pattern);
  if (!matcher.matches(module, 0)) return {};
  const std::string_view digits = matcher.group("idx", module);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return number;
}

}  // namespace qtrain
