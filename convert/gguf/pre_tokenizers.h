#pragma once
#include <span>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// How one value of tokenizer.ggml.pre cuts text before the merges.
struct GgufPreTokenizer {
  std::string_view name;
  /// Regular expressions, one after the other: each cuts what the one before left in one piece, and every match is a
  /// piece of its own.
  std::span<const std::string_view> splits;
  bool ignore_merges = false;  ///< a word of the vocabulary is taken whole
  bool nfc = false;            ///< text is normalized first, as by the models' own tokenizers (llama.cpp does not)
  bool add_bos = false;        ///< where the file does not say
};

/// Null for a name that is not known.
const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name);
/// The names that are known: "gpt-2, phi-2, ...".
std::string gguf_pre_tokenizer_names();

/// The `pre_tokenizer` of a tokenizer.json.
Json pre_tokenizer_json(const GgufPreTokenizer& pre);

/// What a tokenizer.json says about cutting text.
struct PreTokenizerRules {
  Json pre_tokenizer;
  bool ignore_merges = false, nfc = false;
};
/// The entry with exactly these rules, or null.
const GgufPreTokenizer* gguf_pre_tokenizer_of(const PreTokenizerRules& rules);

}  // namespace qtrain
