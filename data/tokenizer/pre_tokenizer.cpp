#include "data/tokenizer/pre_tokenizer.h"

#include <optional>

#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

// Rebuilds the text piece by piece; `f` appends what becomes of one.
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

// GPT-2's expression, as the tokenizers library writes it.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(const Json& json, Alphabet alphabet)
      : prefix_space_(json.value("add_prefix_space", true)), alphabet_(alphabet) {
    if (json.value("use_regex", true)) split_.emplace(Splitter::Rule{.finder = find_regex(kGpt2)});
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
  explicit Metaspace(const Json& json)
      : replacement_(json.value("replacement", "\xE2\x96\x81")),
        scheme_(scheme_of(json)),
        split_({.finder = find_literal(replacement_), .behavior = Behavior::merged_with_next}),
        splits_(json.value("split", true)) {
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never")
      fail(ErrorKind::input, {.cause = "prepend_scheme \"" + scheme_ + "\" is not known"});
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
  // Older files say add_prefix_space instead of prepend_scheme.
  static std::string scheme_of(const Json& json) {
    if (json.contains("prepend_scheme")) return json["prepend_scheme"].get<std::string>();
    return json.value("add_prefix_space", true) ? "always" : "never";
  }
  std::string replacement_, scheme_;
  Splitter split_;
  bool splits_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  PreTokenizerSequence(const Json& list, Alphabet alphabet) {
    for (const Json& step : list)
      if (auto p = make_pre_tokenizer(step, alphabet)) steps_.push_back(std::move(p));
  }
  void apply(PreTokens& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

Splitter::Rule whitespace_rule() {
  // Runs of word characters, and runs of what is neither word nor space.
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

}  // namespace

Alphabet alphabet_of(const Json& pre_tokenizer) {
  const Json* last = &pre_tokenizer;
  int seen = 0;  // ByteLevel steps
  const auto count = [&](const auto& self, const Json& step) -> void {
    if (!step.is_object()) return;
    seen += step.value("type", "") == "ByteLevel" ? 1 : 0;
    if (step.contains("pretokenizers"))
      for (const Json& inner : step["pretokenizers"]) self(self, inner);
  };
  count(count, pre_tokenizer);
  while (last->is_object() && last->contains("pretokenizers") && !(*last)["pretokenizers"].empty())
    last = &(*last)["pretokenizers"].back();
  return seen == 1 && last->is_object() && last->value("type", "") == "ByteLevel" ? Alphabet::bytes
                                                                                  : Alphabet::characters;
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json, Alphabet alphabet) {
  if (json.is_null()) return nullptr;
  const std::string type = json.at("type");
  const auto splitter = [](Splitter::Rule rule) { return std::make_unique<Splitter>(std::move(rule)); };
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(json, alphabet);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json);
  if (type == "Sequence") return std::make_unique<PreTokenizerSequence>(json.at("pretokenizers"), alphabet);
  if (type == "Split")
    return splitter({.finder = find_pattern(json.at("pattern")),
                     .behavior = behavior_named(json.at("behavior")),
                     .invert = json.value("invert", false)});
  if (type == "Digits") {
    const bool each = json.value("individual_digits", false);
    return splitter({.finder = find_characters(is_numeric, each ? Grouping::single : Grouping::runs)});
  }
  if (type == "Punctuation")
    return splitter({.finder = find_characters(is_punctuation, Grouping::single),
                     .behavior = behavior_named(json.value("behavior", "Isolated"))});
  if (type == "Whitespace") return splitter(whitespace_rule());
  if (type == "WhitespaceSplit")
    return splitter({.finder = find_characters(is_white_space, Grouping::single), .behavior = Behavior::removed});
  fail(ErrorKind::input, {.cause = "pre-tokenizer \"" + type + "\" is not supported",
                          .remedy = "supported: ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace, "
                                    "WhitespaceSplit, Sequence"});
}

}  // namespace qtrain
