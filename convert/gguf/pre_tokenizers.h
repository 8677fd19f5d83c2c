#pragma once
#include <span>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// How a pre-tokenizer (a value of tokenizer.ggml.pre) splits text before the merges.
struct GgufPreTokenizer {
  std::string_view name;
  /// Regular expressions applied one after the other: each splits the pieces that the one before left, and every match
  /// becomes a piece.
  std::span<const std::string_view> splits;
  bool ignore_merges = false;  ///< a piece that is in the vocabulary is one token
  bool nfc = false;            ///< text is normalized first, as in the models' own tokenizers (llama.cpp does not)
  bool add_bos = false;        ///< default if the file does not say
};

/// The pre-tokenizer with that name, or null.
const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name);
/// All known names: "gpt-2, phi-2, ...".
std::string gguf_pre_tokenizer_names();

/// The `pre_tokenizer` of a tokenizer.json.
Json pre_tokenizer_json(const GgufPreTokenizer& pre);

/// The rules of a tokenizer.json for splitting text.
struct PreTokenizerRules {
  Json pre_tokenizer;
  bool ignore_merges = false, nfc = false;
};
/// The pre-tokenizer with exactly these rules, or null.
const GgufPreTokenizer* gguf_pre_tokenizer_of(const PreTokenizerRules& rules);

}  // namespace qtrain
