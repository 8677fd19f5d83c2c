#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"

namespace qtrain {
namespace {

// PCRE2's \s has U+180E, which is no white space in Unicode any more; the class is written out.
constexpr std::string_view kSpaces = R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::string spell_out_spaces(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') out += in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
      else if (next == 'S' && !in_class) out += "[^" + std::string(kSpaces) + "]";
      else out.append({c, next});
      continue;
    }
    if (c == '[' && !in_class) in_class = true;
    else if (c == ']' && in_class) in_class = false;
    out += c;
  }
  return out;
}

struct FreeMatch {
  void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
};
struct FreeContext {
  void operator()(pcre2_match_context* m) const { pcre2_match_context_free(m); }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  const std::string spelled = spell_out_spaces(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (!code->code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    fail(ErrorKind::input, {.cause = "the regular expression " + pattern + " is not valid: " + reinterpret_cast<char*>(text)});
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without it, matching is only slower
  code_ = std::move(code);
}

void Regex::each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> limits(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(limits.get(), 50'000'000);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  for (std::size_t at = 0; at < text.size();) {
    const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), limits.get());
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) fail(ErrorKind::input, {.cause = "the tokenizer's regular expression gave up on a text (match limit)", .place = pattern_});
    const std::size_t begin = range[0], end = range[1];
    if (end > begin) f(begin, end);
    at = end > at ? end : at + 1;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
}

}  // namespace qtrain
