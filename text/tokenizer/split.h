#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json_view.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/regex.h"

namespace qtrain {

/// Finds the matches of a pattern in a piece, from left to right.
using Finder = std::function<void(std::string_view piece, const Regex::OnMatch& on_match)>;

/// Finds each character that satisfies a predicate; `runs`: merges neighbors.
enum class Grouping : std::uint8_t { single, runs };
Finder find_characters(bool (*matches)(char32_t), Grouping grouping);
Finder find_literal(std::string pattern);
Finder find_regex(const std::string& pattern);
/// {"String": ...} or {"Regex": ...}.
Finder find_pattern(const JsonView& pattern);

/// What to do with matched text.
enum class Behavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Behavior behavior_named(const std::string& name);

/// Splits pieces at the matches of a pattern.
class Splitter final : public PreTokenizer {
 public:
  struct Rule {
    Finder finder;
    Behavior behavior = Behavior::isolated;
    bool invert = false;  ///< treat the unmatched text as matches
  };
  explicit Splitter(Rule rule) : rule_(std::move(rule)) {}
  void apply(PreTokens& tokens) const override;

 private:
  void split_isolated(std::string_view text, Piece piece, std::vector<Piece>& out) const;

  Rule rule_;
};

/// A hand-written scanner for a regular expression that many tokenizers use (those of GPT-2, of cl100k and its
/// descendants, of Qwen): same matches, several times faster. Empty for other expressions.
Finder find_scanner(std::string_view pattern);

}  // namespace qtrain
