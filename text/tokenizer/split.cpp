#include "text/tokenizer/split.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "text/find.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/unicode_tables.h"

namespace qtrain {
namespace {

/// A part of a piece, relative to it, and whether it counts as a match.
struct Part {
  std::size_t begin, end;
  bool matched;
};
using Parts = std::vector<Part>;

Parts find_parts(std::string_view text, const Splitter::Rule& rule) {
  Parts parts;
  std::size_t last = 0;
  rule.finder(text, [&](std::size_t begin, std::size_t end) {
    if (begin > last) parts.push_back({last, begin, rule.invert});
    parts.push_back({begin, end, !rule.invert});
    last = end;
  });
  if (last < text.size()) parts.push_back({last, text.size(), rule.invert});
  return parts;
}

// A match joins the previous part, unless that is a match too.
Parts merge_with_previous(const Parts& parts) {
  Parts out;
  bool previous_matched = false;
  for (const Part& p : parts) {
    if (p.matched && !previous_matched && !out.empty())
      out.back().end = p.end;
    else
      out.push_back(p);
    previous_matched = p.matched;
  }
  return out;
}

Parts merge_with_next(const Parts& parts) {
  Parts out;
  bool next_matched = false;
  for (std::size_t i = parts.size(); i-- > 0;) {
    if (parts[i].matched && !next_matched && !out.empty())
      out.back().begin = parts[i].begin;
    else
      out.push_back(parts[i]);
    next_matched = parts[i].matched;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Parts merge_equals(const Parts& parts) {
  Parts out;
  for (const Part& p : parts) {
    if (!out.empty() && out.back().matched == p.matched)
      out.back().end = p.end;
    else
      out.push_back(p);
  }
  return out;
}

Parts behave(Parts parts, Behavior behavior) {
  switch (behavior) {
    case Behavior::isolated: break;
    case Behavior::removed:
      parts.erase(std::remove_if(parts.begin(), parts.end(), [](const Part& p) { return p.matched; }), parts.end());
      break;
    case Behavior::merged_with_previous: return merge_with_previous(parts);
    case Behavior::merged_with_next: return merge_with_next(parts);
    case Behavior::contiguous: return merge_equals(parts);
  }
  return parts;
}

/// Character kinds that the expressions distinguish.
enum class CharKind : std::uint8_t { other, letter, number, space, line_end };

CharKind category_kind(int category) {
  // utf8proc's numbering: 1..5 are letters, 9..11 numbers.
  if (category >= 1 && category <= 5) return CharKind::letter;
  return category >= 9 && category <= 11 ? CharKind::number : CharKind::other;
}

/// The kind of every character, one byte each.
std::vector<CharKind> make_kinds() {
  std::vector<CharKind> kinds(0x110000);
  for (char32_t c = 0; c < kinds.size(); ++c)
    kinds[c] = is_white_space(c) ? CharKind::space : category_kind(general_category(c));
  for (const CodePointRange& r : characters_since_unicode_14()) {
    const char kind = r.category.front();
    for (char32_t c = r.first; c <= r.last; ++c)
      kinds[c] = kind == 'L' ? CharKind::letter : kind == 'N' ? CharKind::number : CharKind::other;
  }
  kinds['\r'] = kinds['\n'] = CharKind::line_end;
  return kinds;
}

/// The differences between the expressions.
struct ScanRule {
  std::string_view pattern;
  bool words_take_any = false;        ///< [^\r\n\p{L}\p{N}]?\p{L}+ instead of  ?\p{L}+
  bool case_folded = false;           ///< for 's, 't, 're, ...
  std::size_t digits = 0;             ///< \p{N}{1,digits}; 0:  ?\p{N}+
  bool signs_take_line_ends = false;  ///< [^\s\p{L}\p{N}]+[\r\n]*, and \s*[\r\n]+ by itself
};

constexpr ScanRule kRules[] = {
    {.pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {.pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     .words_take_any = true,
     .case_folded = true,
     .digits = 3,
     .signs_take_line_ends = true},
    {.pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     .words_take_any = true,
     .case_folded = true,
     .digits = 1,
     .signs_take_line_ends = true},
};

/// Scans valid UTF-8 text in one pass. Every character belongs to a match.
class Scanner {
 public:
  Scanner(const ScanRule& rule, const std::vector<CharKind>& kinds, std::string_view text)
      : rule_(rule), kinds_(kinds), text_(text) {}

  void run(const Regex::OnMatch& on_match) const {
    for (std::size_t begin = 0, end; begin < text_.size(); begin = end) {
      end = match(begin);
      on_match(begin, end);
    }
  }

 private:
  struct Char {
    CharKind kind;
    std::size_t end;
  };
  Char at(std::size_t i) const {
    const auto byte = static_cast<unsigned char>(text_[i]);
    if (byte < 0x80) return {kinds_[byte], i + 1};
    const Utf8Char c = utf8_at(text_, i);
    return {kinds_[c.value], i + c.size};
  }
  static bool is_blank(CharKind kind) { return kind == CharKind::space || kind == CharKind::line_end; }

  /// The end of a run of one kind, of at most `most` characters (0: unlimited).
  std::size_t run_of(CharKind kind, std::size_t i, std::size_t most = 0) const {
    for (std::size_t n = 0; i < text_.size() && (most == 0 || n < most); ++n) {
      const Char c = at(i);
      if (c.kind != kind) break;
      i = c.end;
    }
    return i;
  }

  /// The end of 's, 't, 're, 've, 'm, 'll or 'd after the apostrophe; 0: none.
  std::size_t contraction(std::size_t i) const {
    const auto letter = [&](std::size_t k) -> char {
      if (k >= text_.size()) return '\0';
      const bool capital = text_[k] >= 'A' && text_[k] <= 'Z';
      return capital && rule_.case_folded ? static_cast<char>(text_[k] | 0x20) : text_[k];
    };
    // The long s counts as an s when case is ignored.
    if (rule_.case_folded && text_.substr(i).starts_with("\xC5\xBF")) return i + 2;
    const char first = letter(i), second = letter(i + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 1;
    const bool two =
        (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return two ? i + 2 : 0;
  }

  std::size_t match(std::size_t begin) const {
    const Char first = at(begin);
    if (text_[begin] == '\'')
      if (const std::size_t end = contraction(first.end)) return end;
    if (first.kind == CharKind::letter) return run_of(CharKind::letter, first.end);
    const bool has_next = first.end < text_.size();
    const CharKind next = has_next ? at(first.end).kind : CharKind::line_end;
    const bool space = text_[begin] == ' ';
    const bool joins = rule_.words_take_any ? first.kind == CharKind::other || first.kind == CharKind::space : space;
    if (joins && next == CharKind::letter) return run_of(CharKind::letter, first.end);
    if (first.kind == CharKind::number) return run_of(CharKind::number, begin, rule_.digits);
    if (space && rule_.digits == 0 && next == CharKind::number) return run_of(CharKind::number, first.end);
    if (first.kind == CharKind::other || (space && next == CharKind::other && has_next)) return signs(first.end);
    return blanks(begin);
  }

  std::size_t signs(std::size_t i) const {
    i = run_of(CharKind::other, i);
    return rule_.signs_take_line_ends ? run_of(CharKind::line_end, i) : i;
  }

  // \s*[\r\n]+ ends after the last line end of the blanks; \s+(?!\S) leaves one blank to the next match.
  std::size_t blanks(std::size_t begin) const {
    std::size_t end = begin, last = begin, behind_line_end = 0;
    while (end < text_.size()) {
      const Char c = at(end);
      if (!is_blank(c.kind)) break;
      last = end;
      end = c.end;
      if (c.kind == CharKind::line_end) behind_line_end = end;
    }
    if (rule_.signs_take_line_ends && behind_line_end > 0) return behind_line_end;
    return end == text_.size() || last == begin ? end : last;
  }

  const ScanRule& rule_;
  const std::vector<CharKind>& kinds_;
  std::string_view text_;
};

}  // namespace

Finder find_characters(bool (*matches)(char32_t), Grouping grouping) {
  return [=](std::string_view text, const Regex::OnMatch& on_match) {
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_at(text, i);
      std::size_t end = i + c.size;
      if (matches(c.value)) {
        while (grouping == Grouping::runs && end < text.size()) {
          const Utf8Char next = utf8_at(text, end);
          if (!matches(next.value)) break;
          end += next.size;
        }
        on_match(i, end);
      }
      i = end;
    }
  };
}

Finder find_literal(std::string pattern) {
  return [pattern = std::move(pattern)](std::string_view text, const Regex::OnMatch& on_match) {
    if (pattern.empty()) return;
    for (std::size_t at = 0; (at = find_text(text, pattern, at)) != std::string_view::npos; at += pattern.size())
      on_match(at, at + pattern.size());
  };
}

Finder find_regex(const std::string& pattern) {
  if (Finder scanner = find_scanner(pattern)) return scanner;
  return [regex = Regex(pattern)](std::string_view text, const Regex::OnMatch& on_match) {
    regex.each_match(text, on_match);
  };
}

Finder find_pattern(const JsonView& pattern) {
  if (const auto regex = pattern.find("Regex")) return find_regex(regex->text());
  return find_literal(pattern.at("String").text());
}

Behavior behavior_named(const std::string& name) {
  constexpr std::pair<std::string_view, Behavior> kNames[] = {{"Removed", Behavior::removed},
                                                              {"Isolated", Behavior::isolated},
                                                              {"MergedWithPrevious", Behavior::merged_with_previous},
                                                              {"MergedWithNext", Behavior::merged_with_next},
                                                              {"Contiguous", Behavior::contiguous}};
  for (const auto& [known, value] : kNames)
    if (known == name) return value;
  fail(ErrorKind::input, {.cause = "split behavior \"" + name + "\" is unknown"});
}

void Splitter::split_isolated(std::string_view text, Piece piece, std::vector<Piece>& out) const {
  std::size_t last = piece.begin;
  rule_.finder(text, [&](std::size_t begin, std::size_t end) {
    if (piece.begin + begin > last) out.push_back({last, piece.begin + begin});
    last = piece.begin + end;
    if (end > begin) out.push_back({piece.begin + begin, last});
  });
  if (last < piece.end) out.push_back({last, piece.end});
}

void Splitter::apply(PreTokens& tokens) const {
  std::vector<Piece> out;
  out.reserve(tokens.pieces.size() + tokens.text.text.size() / 4);
  for (const Piece& piece : tokens.pieces) {
    const std::string_view text = std::string_view(tokens.text.text).substr(piece.begin, piece.end - piece.begin);
    if (rule_.behavior == Behavior::isolated) {
      split_isolated(text, piece, out);
      continue;
    }
    for (const Part& p : behave(find_parts(text, rule_), rule_.behavior))
      if (p.end > p.begin) out.push_back({piece.begin + p.begin, piece.begin + p.end});
  }
  tokens.pieces = std::move(out);
}

Finder find_scanner(std::string_view pattern) {
  for (const ScanRule& rule : kRules) {
    if (rule.pattern != pattern) continue;
    static const std::vector<CharKind> kKinds = make_kinds();
    return
        [&rule](std::string_view text, const Regex::OnMatch& on_match) { Scanner(rule, kKinds, text).run(on_match); };
  }
  return {};
}

}  // namespace qtrain
