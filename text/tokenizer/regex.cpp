#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <optional>

#include "core/error.h"
#include "core/os/stop.h"
#include "core/utf8.h"
#include "text/tokenizer/unicode_tables.h"

namespace qtrain {
namespace {

constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
// PCRE2 applies its limits anew at each position where a match may begin, and does not count the characters that a
// repetition passes, so they do not bound the time that a text takes. Therefore the translated expressions contain
// callouts, (?C) and (?C<bits>), at which a StepMeter counts. Common tokenizers take about one step per byte.
constexpr std::uint32_t kMatchLimit = 20'000'000;
constexpr std::uint64_t kStepsPerText = 2'000, kStepsPerByte = 500;
constexpr std::uint64_t kBytesPerStep = 8;         // of a repetition, which takes about a nanosecond per byte
constexpr std::uint64_t kStepsPerLook = 1U << 20;  // how often to check for a requested stop
constexpr int kItemsPerCallout = 64;               // items in a row without a repetition or group
constexpr int kAlternativesPerCallout = 8;
constexpr std::uint64_t kUncountedRepeats = 64;  // of one item, the last of which may fail
constexpr std::uint32_t kMaxLookbehind = 255;    // characters; there are no callouts within

constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
// Besides letters, marks, digits and connectors: further word characters of the library, some below U+0100 and circled
// letters.
constexpr std::string_view kMoreWordCharacters =
    R"(\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

// An expression as messages show it.
std::string shown(std::string_view pattern) {
  constexpr std::size_t kMost = 200;
  return one_line(pattern.substr(0, kMost)) + (pattern.size() > kMost ? "..." : "");
}

std::string spelled(const CodePointRange& r) {
  return r.first == r.last ? fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(r.first))
                           : fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<std::uint32_t>(r.first),
                                         static_cast<std::uint32_t>(r.last));
}

// Contents of a character class for a general category.
std::string category_class(std::string_view name) {
  std::string body = fmt::format("\\p{{{}}}", name);
  for (const CodePointRange& r : characters_since_unicode_14())
    if (r.category.starts_with(name)) body += spelled(r);
  return body;
}

std::string han_class() {
  std::string body;
  for (const CodePointRange& r : han_characters()) body += spelled(r);
  return body;
}

std::string word_class() {
  return category_class("L") + category_class("M") + category_class("Nd") + std::string(kMoreWordCharacters);
}

/// Translates one expression from left to right.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (depth_ == 0 && !is_continuation(c) && !repeats(c)) begin_item(c);
      if (c == '\\')
        escape();
      else if (depth_ > 0)
        class_character(c);
      else if (c == '[')
        open_class();
      else if (c == '{')
        braces();
      else if (c == '(')
        group();
      else
        take(1);
    }
    begin_item(')');
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::input,
         {.cause = fmt::format("the regular expression {} has {}, which is not supported", shown(in_), what)});
  }
  // Whether the character that this byte of UTF-8 belongs to began before it.
  static bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
  char peek(std::size_t ahead = 1) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void take(std::size_t n) {
    out_ += in_.substr(at_, n);
    at_ += n;
  }

  // Whether the character is part of a repetition, as in a+?. If so, notes that a callout has to follow.
  bool repeats(char c) {
    const std::string_view counts = c == '{' ? counts_here() : "";
    if (c != '*' && c != '+' && c != '?' && counts.empty()) return false;
    if (!counts.empty()) repeats_ = highest_count(counts);  // not if a{100} is followed by another ? or +
    if (c != '?' && (counts.empty() || counts.ends_with(',')) && !marked_) mark_item("(?C)");
    callout_due_ = true;
    return true;
  }

  // Inserts callouts where the matcher has to count (see StepMeter): around each repetition, at the beginning of each
  // group, which its repetitions pass, and at intervals in long sequences of items or alternatives.
  void begin_item(char c) {
    if (repeats_ > kUncountedRepeats) mark_item(fmt::format("(?C{})", std::bit_width(repeats_)));
    repeats_ = 1;
    const bool due = callout_due_ || ++items_ > kItemsPerCallout;
    if (due) {
      out_ += "(?C)";
      items_ = 0;
    }
    const bool ends = c == '|' || c == ')';  // matching may continue at an earlier position
    marked_ = !ends && (marked_ || due);
    callout_due_ = c == '|' && ++alternatives_ % kAlternativesPerCallout == 0;
    item_ = ends || c == '(' ? std::nullopt : std::optional(out_.size());
  }
  void mark_item(std::string_view callout) {
    if (item_) out_.insert(*item_, callout);
    marked_ = true;
  }

  // In a class: adds `body` to its members. Outside: makes it a class of its own.
  void put_class(const std::string& body, char escape_letter) {
    const bool negated = escape_letter >= 'A' && escape_letter <= 'Z';
    if (depth_ > 0 && negated) refuse(fmt::format("\\{} in a character class", escape_letter));
    out_ += depth_ > 0 ? body : (negated ? "[^" : "[") + body + "]";
  }

  void escape() {
    const char c = peek();
    if (c == 'S' && depth_ > 0) {
      out_ += R"(\S\x{180E})";  // a space only for PCRE2
      at_ += 2;
      return;
    }
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') return unicode_escape();
    if (c == 'x' && peek(2) == '{') return take(std::min(in_.find('}', at_), in_.size() - 1) + 1 - at_);
    switch (c) {
      case 's':
      case 'S': put_class(std::string(kSpaces), c); break;
      case 'h':
      case 'H': put_class(std::string(kHexDigits), c); break;
      case 'd':
      case 'D': put_class(category_class("Nd"), c); break;
      case 'w':
      case 'W': put_class(word_class(), c); break;
      case 'b': boundary(); break;
      case 'v': out_ += "\\x0B"; break;
      default: return plain_escape(c);
    }
    at_ += 2;
  }

  void plain_escape(char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == '\0' && at_ + 1 >= in_.size()) refuse("a lone backslash at its end");
    if (letter && std::string_view("trnfaexzAZ").find(c) == std::string_view::npos) refuse(fmt::format("\\{}", c));
    take(2);
  }

  void boundary() {
    if (depth_ > 0) {
      out_ += "\\x08";
      return;
    }
    const std::string w = "[" + word_class() + "]";
    out_ += fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", w);
  }

  void property() {
    const std::size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse("\\p without {name}");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = peek() == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool category = std::find(kCategories.begin(), kCategories.end(), name) != kCategories.end();
    if (!category && name != "Han") refuse(fmt::format("the property {}", name));
    put_class(category ? category_class(name) : han_class(), negated ? 'P' : 'p');
    at_ = close + 1;
  }

  void unicode_escape() {
    const std::string_view digits = in_.substr(std::min(at_ + 2, in_.size()), 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse("\\u without four hexadecimal digits");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  void open_class() {
    depth_ = 1;
    take(peek() == '^' ? 2 : 1);
    if (at_ < in_.size() && in_[at_] == ']') refuse("an empty character class");
  }

  // A nested class is a union; PCRE2 has no notation for it, but its members can be added to the outer class.
  void class_character(char c) {
    if (c == '&' && peek() == '&') refuse("an intersection of character classes");
    if (c == '[' && (peek() == ':' || peek() == '^')) refuse("a nested character class");
    if (c == '[') {
      ++depth_;
      ++at_;
    } else if (c == ']') {
      if (--depth_ > 0)
        ++at_;
      else
        take(1);
    } else {
      take(1);
    }
  }

  // The contents of the braces if the expression continues with a count such as {2,3}.
  std::string_view counts_here() const {
    const std::size_t end = in_.find_first_not_of("0123456789,", at_ + 1);
    const bool closed = end != std::string_view::npos && in_[end] == '}';
    return closed ? in_.substr(at_ + 1, end - at_ - 1) : "";
  }
  static std::uint64_t highest_count(std::string_view counts) {
    std::uint64_t highest = 1, count = 0;
    for (const char c : counts) {
      count = c == ',' ? 0 : std::min<std::uint64_t>(count * 10 + static_cast<std::uint64_t>(c - '0'), 1U << 20);
      highest = std::max(highest, count);
    }
    return highest;
  }

  void braces() {
    const std::string_view inside = counts_here();
    if (inside.empty()) {
      out_ += "\\{";  // a literal brace
      ++at_;
      return;
    }
    out_ += fmt::format("{{{}{}}}", inside.starts_with(',') ? "0" : "", inside);
    at_ += inside.size() + 2;
    if (at_ < in_.size() && in_[at_] == '+') refuse("a + after {...}");
  }

  void group() {
    if (peek() == '*') refuse("(*");
    callout_due_ = true;
    if (peek() != '?') return take(1);
    const std::string_view rest = in_.substr(at_ + 2);
    for (const std::string_view known : {":", "=", "!", ">", "<=", "<!", "i:", "i)", "-i:", "-i)"})
      if (rest.starts_with(known)) return take(2 + known.size());
    refuse(fmt::format("(?{}", rest.substr(0, 1)));
  }

  std::string_view in_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string out_;
  bool callout_due_ = false;
  bool marked_ = false;               // whether a callout precedes the last item, with few items in between
  int items_ = 0, alternatives_ = 0;  // items since the last callout; all alternatives
  std::optional<std::size_t> item_;   // offset of the last item in out_, unless it is a group
  std::uint64_t repeats_ = 1;         // highest count of repetitions of that item
};

/// Translates an expression from the syntax of tokenizer.json (Oniguruma, Ruby flavor) to an equivalent one for PCRE2
/// with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. Character classes are spelled out, so that the Unicode version of
/// PCRE2 does not matter. Throws ErrorKind::input for constructs that differ and cannot be rewritten.
std::string to_pcre2(std::string_view pattern) {
  return Translator(pattern).run();
}

struct FreeMatch {
  void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
};
struct FreeContext {
  void operator()(pcre2_match_context* m) const { pcre2_match_context_free(m); }
};

/// Counts the work on one text at the callouts of an expression: a step for each, the characters passed since the last
/// one, and for (?C<bits>) the fewer than 2^bits repetitions that may follow without a callout.
class StepMeter {
 public:
  explicit StepMeter(std::size_t bytes) : limit_(kStepsPerText + kStepsPerByte * bytes), left_(limit_) {}
  std::uint64_t limit() const { return limit_; }
  /// Returns false if the limit is exceeded or a stop was requested.
  bool count(std::uint64_t steps) {
    if (steps > left_) return false;
    left_ -= steps;
    if (limit_ - left_ < next_look_) return true;
    next_look_ = limit_ - left_ + kStepsPerLook;
    return !stop_requested();
  }
  static int on_callout(pcre2_callout_block* callout, void* meter) {
    auto& m = *static_cast<StepMeter*>(meter);
    const std::size_t at = callout->current_position;
    const std::uint64_t passed = at > m.at_ ? at - m.at_ : m.at_ - at;
    m.at_ = at;
    const std::uint64_t ahead = callout->callout_number == 0 ? 0 : std::uint64_t{1} << callout->callout_number;
    return m.count(1 + (passed + ahead) / kBytesPerStep) ? 0 : PCRE2_ERROR_CALLOUT;
  }

 private:
  std::uint64_t limit_, left_, next_look_ = kStepsPerLook;
  std::size_t at_ = 0;  // of the last callout in the text
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
    if (!code && error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
    if (!code)
      fail(ErrorKind::input,
           {.cause = "the regular expression " + shown(given) + " is not valid: " + error_text(error)});
    std::uint32_t lookbehind = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
    if (lookbehind > kMaxLookbehind) {
      pcre2_code_free(code);
      fail(ErrorKind::input, {.cause = fmt::format("the regular expression {} looks back over more than {} characters",
                                                   shown(given), kMaxLookbehind)});
    }
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
        meter_(bytes),
        match_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!match_ || !context_) throw std::bad_alloc();
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_callout(context_.get(), StepMeter::on_callout, &meter_);
  }
  /// Finds the next match at or after `from`.
  bool find(std::string_view text, std::size_t from) {
    const int rc = meter_.count(1) ? match(text, from) : PCRE2_ERROR_CALLOUT;
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc >= 0) return true;
    if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (rc == PCRE2_ERROR_CALLOUT) throw_if_stopped();
    if (rc != PCRE2_ERROR_CALLOUT && rc != PCRE2_ERROR_MATCHLIMIT) fail_on_text(error_text(rc), "");
    fail_on_text(fmt::format("it takes more than {} steps on {} bytes", meter_.limit(), text.size()),
                 "shorten runs of similar characters in the text, split it into several rows, or use an expression "
                 "without repetitions that overlap");
  }
  std::size_t begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
  std::size_t end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }

 private:
  [[noreturn]] void fail_on_text(const std::string& why, const std::string& remedy) const {
    fail(ErrorKind::input, {.cause = fmt::format("the regular expression {} in tokenizer.json failed on a text: {}",
                                                 shown(code_.pattern), why),
                            .remedy = remedy});
  }
  int match(std::string_view text, std::size_t from) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code_.compiled) rc = pcre2_jit_match(code_.code, subject, text.size(), from, 0, match_.get(), context_.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code_.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match_.get(),
                       context_.get());
    return rc;
  }

  const Code& code_;
  StepMeter meter_;
  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
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
