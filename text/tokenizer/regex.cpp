#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "core/error.h"
#include "text/tokenizer/regex_syntax.h"

namespace qtrain {
namespace {

constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
// Backtracking steps of a match. Nearly all need few; for others the limit is raised, and what it then allows counts as
// used up, so that the steps of a whole text are limited as well. A text may be split into many that are short.
constexpr std::array<std::uint32_t, 4> kMatchLimits{1'000, 30'000, 1'000'000, 20'000'000};
constexpr std::uint64_t kStepsPerText = 100'000, kStepsPerByte = 1'000;

struct FreeMatch {
  void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
};
struct FreeContext {
  void operator()(pcre2_match_context* m) const { pcre2_match_context_free(m); }
};

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<char*>(text);
}

}  // namespace

struct Regex::Code {
  explicit Code(const std::string& given) : pattern(given) {
    const std::string translated = to_pcre2(given);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
    if (!code)
      fail(ErrorKind::input, {.cause = "the regular expression " + given + " is not valid: " + error_text(error)});
    compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  std::string pattern;
  pcre2_code* code = nullptr;
  bool compiled = false;  // whether JIT compilation succeeded
};

/// Match state of one search.
class Regex::Matcher {
 public:
  Matcher(const Code& code, std::size_t bytes)
      : code_(code),
        steps_left_(kStepsPerText + kStepsPerByte * bytes),
        match_(pcre2_match_data_create(1, nullptr)),
        limits_(pcre2_match_context_create(nullptr)) {
    check(match_ && limits_, "PCRE2 is out of memory");
    pcre2_set_heap_limit(limits_.get(), kHeapLimitKib);
  }
  /// Finds the next match at or after `from`.
  bool find(std::string_view text, std::size_t from) {
    int rc = PCRE2_ERROR_MATCHLIMIT;
    for (std::size_t i = 0; i < kMatchLimits.size() && rc == PCRE2_ERROR_MATCHLIMIT; ++i) {
      if (i > 0) use_up(kMatchLimits[i]);
      rc = match(text, from, kMatchLimits[i]);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) fail_on_text(error_text(rc));
    return true;
  }
  std::size_t begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
  std::size_t end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }

 private:
  [[noreturn]] void fail_on_text(const std::string& why) const {
    fail(ErrorKind::input,
         {.cause = "the regular expression " + code_.pattern + " in tokenizer.json failed on a text: " + why});
  }
  void use_up(std::uint64_t steps) {
    if (steps > steps_left_) fail_on_text(error_text(PCRE2_ERROR_MATCHLIMIT));
    steps_left_ -= steps;
  }
  int match(std::string_view text, std::size_t from, std::uint32_t limit) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    pcre2_set_match_limit(limits_.get(), limit);
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_.compiled) rc = pcre2_jit_match(code_.code, subject, text.size(), from, 0, match_.get(), limits_.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code_.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_.get(),
                       limits_.get());
    return rc;
  }

  const Code& code_;
  std::uint64_t steps_left_;
  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  std::unique_ptr<pcre2_match_context, FreeContext> limits_;
};

Regex::Regex(const std::string& pattern) : code_(std::make_shared<const Code>(pattern)) {}

void Regex::each_match(std::string_view text, const OnMatch& f) const {
  if (text.empty()) return;
  Matcher matcher(*code_, text.size());
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t from = 0, last_end = kNone;
  while (from <= text.size() && matcher.find(text, from)) {
    const std::size_t begin = matcher.begin(), end = matcher.end();
    if (begin == end && end == last_end) {  // continue after the next character
      do ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
      continue;
    }
    f(begin, end);
    from = last_end = end;
  }
}

}  // namespace qtrain
