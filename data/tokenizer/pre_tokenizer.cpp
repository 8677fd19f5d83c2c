#include "data/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "data/tokenizer/regex.h"
#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

/// A part of a piece, relative to it, and whether the pattern matched there.
struct Part {
  std::size_t begin, end;
  bool matched;
};
using Parts = std::vector<Part>;
/// Finds matches in a piece and calls back for each.
using Finder = std::function<void(std::string_view, const std::function<void(std::size_t, std::size_t)>&)>;

enum class Behavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_named(const std::string& name) {
  constexpr std::pair<std::string_view, Behavior> kNames[] = {{"Removed", Behavior::removed},
                                                              {"Isolated", Behavior::isolated},
                                                              {"MergedWithPrevious", Behavior::merged_with_previous},
                                                              {"MergedWithNext", Behavior::merged_with_next},
                                                              {"Contiguous", Behavior::contiguous}};
  for (const auto& [known, value] : kNames)
    if (known == name) return value;
  fail(ErrorKind::input, {.cause = "split behavior \"" + name + "\" is not known"});
}

Parts find_parts(std::string_view text, const Finder& finder, bool invert) {
  Parts parts;
  std::size_t last = 0;
  finder(text, [&](std::size_t begin, std::size_t end) {
    if (begin > last) parts.push_back({last, begin, invert});
    parts.push_back({begin, end, !invert});
    last = end;
  });
  if (last < text.size()) parts.push_back({last, text.size(), invert});
  return parts;
}

// A match joins the part before it, unless that is a match too.
void merge_with_previous(const Parts& parts, Parts& out) {
  bool previous_matched = false;
  for (const Part& p : parts) {
    if (p.matched && !previous_matched && !out.empty()) out.back().end = p.end;
    else out.push_back(p);
    previous_matched = p.matched;
  }
}

void merge_with_next(const Parts& parts, Parts& out) {
  bool next_matched = false;
  for (std::size_t i = parts.size(); i-- > 0;) {
    if (parts[i].matched && !next_matched && !out.empty()) out.back().begin = parts[i].begin;
    else out.push_back(parts[i]);
    next_matched = parts[i].matched;
  }
  std::reverse(out.begin(), out.end());
}

Parts behave(const Parts& parts, Behavior behavior) {
  Parts out;
  switch (behavior) {
    case Behavior::isolated: return parts;
    case Behavior::removed:
      for (const Part& p : parts)
        if (!p.matched) out.push_back(p);
      return out;
    case Behavior::merged_with_previous: merge_with_previous(parts, out); return out;
    case Behavior::merged_with_next: merge_with_next(parts, out); return out;
    case Behavior::contiguous:
      for (const Part& p : parts)
        if (!out.empty() && out.back().matched == p.matched) out.back().end = p.end;
        else out.push_back(p);
      return out;
  }
  return out;
}

class Splitter final : public PreTokenizer {
 public:
  struct Rule {
    Finder finder;
    Behavior behavior = Behavior::isolated;
    bool invert = false;
  };
  explicit Splitter(Rule rule) : rule_(std::move(rule)) {}
  void apply(PreTokens& tokens) const override {
    std::vector<Piece> out;
    out.reserve(tokens.pieces.size() * 2);
    for (const Piece& piece : tokens.pieces) {
      const std::string_view text = std::string_view(tokens.text.text).substr(piece.begin, piece.end - piece.begin);
      for (const Part& p : behave(find_parts(text, rule_.finder, rule_.invert), rule_.behavior))
        if (p.end > p.begin) out.push_back({piece.begin + p.begin, piece.begin + p.end});
    }
    tokens.pieces = std::move(out);
  }

 private:
  Rule rule_;
};

// Matches of single characters that satisfy a predicate; `runs` joins neighbours.
Finder characters(bool (*matches)(char32_t), bool runs) {
  return [=](std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) {
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_at(text, i);
      std::size_t end = i + c.size;
      if (matches(c.value)) {
        while (runs && end < text.size()) {
          const Utf8Char next = utf8_at(text, end);
          if (!matches(next.value)) break;
          end += next.size;
        }
        f(i, end);
      }
      i = end;
    }
  };
}

Finder literal(std::string pattern) {
  return [pattern = std::move(pattern)](std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) {
    if (pattern.empty()) return;
    for (std::size_t at = 0; (at = text.find(pattern, at)) != std::string_view::npos; at += pattern.size()) f(at, at + pattern.size());
  };
}

Finder regex(const std::string& pattern) {
  return [r = Regex(pattern)](std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) { r.each_match(text, f); };
}

// Rebuilds the text piece by piece; `f` appends what becomes of one.
void rewrite(PreTokens& tokens, const std::function<void(TrackedBuilder&, const Piece&, bool first)>& f) {
  TrackedBuilder out(tokens.text);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tokens.pieces.size(); ++i) {
    const std::size_t begin = out.size();
    f(out, tokens.pieces[i], i == 0 && tokens.at_start);
    pieces.push_back({begin, out.size()});
  }
  tokens.text = out.take();
  tokens.pieces = std::move(pieces);
}

// GPT-2's expression, as the tokenizers library writes it.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The mapping to printable characters is left out: the model works on bytes (see Bpe).
class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const Json& json) : prefix_space_(json.value("add_prefix_space", true)) {
    if (json.value("use_regex", true)) split_.emplace(Splitter::Rule{.finder = regex(kGpt2)});
  }
  void apply(PreTokens& tokens) const override {
    if (prefix_space_)
      rewrite(tokens, [&](TrackedBuilder& out, const Piece& p, bool) {
        if (tokens.text.text[p.begin] != ' ') out.replace(p.begin, p.begin, " ");
        out.keep(p.begin, p.end);
      });
    if (split_) split_->apply(tokens);
  }

 private:
  bool prefix_space_;
  std::optional<Splitter> split_;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const Json& json)
      : replacement_(json.value("replacement", "\xE2\x96\x81")), scheme_(scheme_of(json)),
        split_({.finder = literal(replacement_), .behavior = Behavior::merged_with_next}), splits_(json.value("split", true)) {}
  void apply(PreTokens& tokens) const override {
    rewrite(tokens, [&](TrackedBuilder& out, const Piece& p, bool first) {
      const std::string_view piece = std::string_view(tokens.text.text).substr(p.begin, p.end - p.begin);
      const bool prepend = scheme_ == "always" || (scheme_ == "first" && first);
      if (prepend && !piece.starts_with(replacement_) && !piece.starts_with(' ')) out.replace(p.begin, p.begin, replacement_);
      for (std::size_t i = p.begin; i < p.end; ++i) {
        if (tokens.text.text[i] == ' ') out.replace(i, i + 1, replacement_);
        else out.keep(i, i + 1);
      }
    });
    if (splits_) split_.apply(tokens);
  }

 private:
  // Older files say add_prefix_space instead of prepend_scheme.
  static std::string scheme_of(const Json& json) {
    if (json.contains("prepend_scheme")) return json["prepend_scheme"];
    return json.value("add_prefix_space", true) ? "always" : "never";
  }
  std::string replacement_, scheme_;
  Splitter split_;
  bool splits_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(const Json& list) {
    for (const Json& step : list)
      if (auto p = make_pre_tokenizer(step)) steps_.push_back(std::move(p));
  }
  void apply(PreTokens& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

Splitter::Rule split_rule(const Json& json) {
  const Json& pattern = json.at("pattern");
  return {.finder = pattern.contains("Regex") ? regex(pattern["Regex"]) : literal(pattern.at("String")),
          .behavior = behavior_named(json.at("behavior")), .invert = json.value("invert", false)};
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = json.at("type");
  const auto splitter = [](Splitter::Rule rule) { return std::make_unique<Splitter>(std::move(rule)); };
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(json);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json);
  if (type == "Sequence") return std::make_unique<Sequence>(json.at("pretokenizers"));
  if (type == "Split") return splitter(split_rule(json));
  if (type == "Digits") return splitter({.finder = characters(is_numeric, !json.value("individual_digits", false))});
  if (type == "Punctuation") return splitter({.finder = characters(is_punctuation, false), .behavior = behavior_named(json.value("behavior", "Isolated"))});
  if (type == "Whitespace") return splitter({.finder = regex(R"(\w+|[^\w\s]+)"), .behavior = Behavior::removed, .invert = true});
  if (type == "WhitespaceSplit") return splitter({.finder = characters(is_white_space, false), .behavior = Behavior::removed});
  fail(ErrorKind::input, {.cause = "pre-tokenizer \"" + type + "\" is not supported",
                          .remedy = "supported: ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace, WhitespaceSplit, Sequence"});
}

}  // namespace qtrain
