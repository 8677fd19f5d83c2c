#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/module_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

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

// A module name has some forty characters: a pattern that needs more steps is a mistake or an attack.
constexpr std::uint32_t kSteps = 100'000;
constexpr std::size_t kLongest = 10'000;

[[noreturn]] void refuse(const std::string& pattern, const std::string& why) {
  fail(ErrorKind::usage, {.cause = fmt::format("the pattern of modules \"{}\" {}", pattern.substr(0, 200), why),
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

}  // namespace

bool matches_whole(const std::string& pattern, std::string_view module) {
  const Owned<pcre2_code> code = compile(pattern);
  const Owned<pcre2_match_data> data(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  const Owned<pcre2_match_context> limits(pcre2_match_context_create(nullptr));
  if (!data || !limits) throw std::bad_alloc();
  pcre2_set_match_limit(limits.get(), kSteps);
  const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0,
                                PCRE2_ANCHORED | PCRE2_ENDANCHORED, data.get(), limits.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) refuse(pattern, "takes too many steps to match");
  return found >= 0;
}

}  // namespace qtrain
