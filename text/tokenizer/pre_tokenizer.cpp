#include "text/tokenizer/pre_tokenizer.h"

#include <limits>
#include <optional>

#include "text/tokenizer/split.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

// Rebuilds the text piece by piece; `f` appends the new text of a piece.
template <class F>
void rewrite(PreTokens& tokens, F&& f) {
  TrackedBuilder out(tokens.text);
  std::vector<Piece> pieces;
  pieces.reserve(tokens.pieces.size());
  for (const Piece& p : tokens.pieces) {
    const std::size_t begin = out.size();
    f(out, p);
    pieces.push_back({begin, out.size()});
  }
  tokens.text = out.take();
  tokens.pieces = std::move(pieces);
}

// GPT-2's expression as written in the tokenizers library.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(const JsonView& json, Alphabet alphabet)
      : prefix_space_(json.flag("add_prefix_space", true)), alphabet_(alphabet) {
    if (json.flag("use_regex", true)) split_.emplace(Splitter::Rule{.finder = find_regex(kGpt2)});
  }
  void apply(PreTokens& tokens) const override {
    if (prefix_space_) add_spaces(tokens);
    if (split_) split_->apply(tokens);
    if (alphabet_ == Alphabet::characters) show_bytes(tokens);
  }

 private:
  static void add_spaces(PreTokens& tokens) {
    rewrite(tokens, [&](TrackedBuilder& out, const Piece& p) {
      if (tokens.text.text[p.begin] != ' ') out.replace(p.begin, p.begin, " ");
      out.keep(p.begin, p.end);
    });
  }
  static void show_bytes(PreTokens& tokens) {
    rewrite(tokens, [&](TrackedBuilder& out, const Piece& p) {
      for (std::size_t i = p.begin; i < p.end; ++i) {
        std::string shown;
        append_utf8(shown, printable_of_byte(static_cast<unsigned char>(tokens.text.text[i])));
        out.replace(i, i + 1, shown);
      }
    });
  }

  bool prefix_space_;
  Alphabet alphabet_;
  std::optional<Splitter> split_;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const JsonView& json)
      : replacement_(json.text("replacement", "\xE2\x96\x81")),
        scheme_(scheme_of(json)),
        split_({.finder = find_literal(replacement_), .behavior = Behavior::merged_with_next}),
        splits_(json.flag("split", true)) {
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never")
      fail(ErrorKind::input, {.cause = "prepend_scheme \"" + scheme_ + "\" is unknown"});
  }
  void apply(PreTokens& tokens) const override {
    rewrite(tokens, [&](TrackedBuilder& out, const Piece& p) {
      const std::string_view piece = std::string_view(tokens.text.text).substr(p.begin, p.end - p.begin);
      const bool first = tokens.text.source_of(p.begin, p.begin + 1).first == 0;
      const bool prepend = scheme_ == "always" || (scheme_ == "first" && first);
      if (prepend && !piece.starts_with(replacement_) && !piece.starts_with(' '))
        out.replace(p.begin, p.begin, replacement_);
      for (std::size_t i = p.begin; i < p.end; ++i) {
        if (tokens.text.text[i] == ' ')
          out.replace(i, i + 1, replacement_);
        else
          out.keep(i, i + 1);
      }
    });
    if (splits_) split_.apply(tokens);
  }

 private:
  // Older files have add_prefix_space instead of prepend_scheme.
  static std::string scheme_of(const JsonView& json) {
    return json.text("prepend_scheme", json.flag("add_prefix_space", true) ? "always" : "never");
  }
  std::string replacement_, scheme_;
  Splitter split_;
  bool splits_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  PreTokenizerSequence(const JsonView& list, Alphabet alphabet) {
    list.each([&](const JsonView& step) {
      if (auto p = make_pre_tokenizer(step, alphabet)) steps_.push_back(std::move(p));
    });
  }
  void apply(PreTokens& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

Splitter::Rule whitespace_rule() {
  // Runs of word characters, and runs of characters that are neither word characters nor spaces.
  return {.finder =
              [](std::string_view text, const Regex::OnMatch& on_match) {
                const auto kind = [](char32_t c) { return is_word_char(c) ? 1 : is_white_space(c) ? 0 : 2; };
                std::size_t begin = 0;
                int run = 0;
                for (std::size_t i = 0; i < text.size();) {
                  const Utf8Char c = utf8_at(text, i);
                  if (const int k = kind(c.value); k != run) {
                    if (run != 0) on_match(begin, i);
                    begin = i;
                    run = k;
                  }
                  i += c.size;
                }
                if (run != 0) on_match(begin, text.size());
              },
          .behavior = Behavior::removed,
          .invert = true};
}

// Runs of one script, including characters without a script; like the library, drops such characters at the beginning.
Splitter::Rule scripts_rule() {
  return {.finder =
              [](std::string_view text, const Regex::OnMatch& on_match) {
                std::size_t begin = 0;
                int run = 0;
                for (std::size_t i = 0; i < text.size();) {
                  const Utf8Char c = utf8_at(text, i);
                  if (const int script = script_of(c.value); script != 0 && script != run) {
                    if (run != 0) on_match(begin, i);
                    begin = i;
                    run = script;
                  }
                  i += c.size;
                }
                if (run != 0) on_match(begin, text.size());
              },
          .behavior = Behavior::removed,
          .invert = true};
}

Splitter::Rule fixed_length_rule(const JsonView& json) {
  const auto given = json.find("length");
  const std::int64_t length = given ? given->integer({1, std::numeric_limits<std::int32_t>::max()}) : 5;
  return {.finder = [length](std::string_view text, const Regex::OnMatch& on_match) {
    for (std::size_t i = 0, begin = 0; i < text.size(); begin = i) {
      for (std::int64_t n = 0; n < length && i < text.size(); ++n) i += utf8_at(text, i).size;
      on_match(begin, i);
    }
  }};
}

std::string delimiter_of(const JsonView& delimiter) {
  const std::string& text = delimiter.text();
  if (text.empty() || utf8_at(text, 0).size != text.size()) delimiter.refuse("must be one character");
  return text;
}

}  // namespace

Alphabet alphabet_of(const JsonView& pre_tokenizer) {
  int byte_levels = 0;
  const auto last_is_byte_level = [&](const auto& self, const JsonView& step) -> bool {
    if (step.is_null()) return false;
    const bool here = step.text("type", "") == "ByteLevel";
    byte_levels += here ? 1 : 0;
    const auto inner = step.find("pretokenizers");
    if (!inner) return here;
    bool last = false;
    inner->each([&](const JsonView& one) { last = self(self, one); });
    return last;
  };
  const bool last = last_is_byte_level(last_is_byte_level, pre_tokenizer);
  return last && byte_levels == 1 ? Alphabet::bytes : Alphabet::characters;
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonView& json, Alphabet alphabet) {
  if (json.is_null()) return nullptr;
  const std::string& type = json.at("type").text();
  const auto splitter = [](Splitter::Rule rule) { return std::make_unique<Splitter>(std::move(rule)); };
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(json, alphabet);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json);
  if (type == "Sequence") return std::make_unique<PreTokenizerSequence>(json.at("pretokenizers"), alphabet);
  if (type == "Split")
    return splitter({.finder = find_pattern(json.at("pattern")),
                     .behavior = behavior_named(json.at("behavior").text()),
                     .invert = json.flag("invert", false)});
  if (type == "Digits") {
    const bool each = json.flag("individual_digits", false);
    return splitter({.finder = find_characters(is_numeric, each ? Grouping::single : Grouping::runs)});
  }
  if (type == "Punctuation")
    return splitter({.finder = find_characters(is_punctuation, Grouping::single),
                     .behavior = behavior_named(json.text("behavior", "Isolated"))});
  if (type == "Whitespace") return splitter(whitespace_rule());
  if (type == "WhitespaceSplit")
    return splitter({.finder = find_characters(is_white_space, Grouping::single), .behavior = Behavior::removed});
  if (type == "BertPreTokenizer") {
    static const Json both = Json::parse(R"([{"type": "WhitespaceSplit"}, {"type": "Punctuation"}])");
    return std::make_unique<PreTokenizerSequence>(both, alphabet);
  }
  if (type == "CharDelimiterSplit")
    return splitter({.finder = find_literal(delimiter_of(json.at("delimiter"))), .behavior = Behavior::removed});
  if (type == "UnicodeScripts") return splitter(scripts_rule());
  if (type == "FixedLength") return splitter(fixed_length_rule(json));
  fail(ErrorKind::input, {.cause = "pre-tokenizer \"" + type + "\" is not supported",
                          .remedy = "supported: ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace, "
                                    "WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, UnicodeScripts, "
                                    "FixedLength, Sequence"});
}

}  // namespace qtrain
