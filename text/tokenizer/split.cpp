#include "text/tokenizer/split.h"

#include <algorithm>

#include "text/tokenizer/scanner.h"
#include "text/tokenizer/unicode.h"

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
    for (std::size_t at = 0; (at = text.find(pattern, at)) != std::string_view::npos; at += pattern.size())
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

}  // namespace qtrain
