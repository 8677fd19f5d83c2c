#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/gguf_write.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// A tokenizer as GGUF stores it.
struct GgufVocabulary {
  std::string model, pre;           ///< tokenizer.ggml.model and .pre
  std::vector<std::string> tokens;  ///< one per row of the embedding
  std::vector<std::int32_t> types;
  std::vector<float> scores;        ///< sentencepiece only
  std::vector<std::string> merges;  ///< byte-level BPE only
  std::optional<bool> add_space_prefix;
  std::vector<std::string> notes;  ///< what GGUF cannot express
};

struct VocabularySource {
  std::filesystem::path folder;  ///< with tokenizer.json or tokenizer.model
  const Tokenizer& tokenizer;    ///< of that folder
  std::int64_t rows = 0;         ///< rows of the embedding; a row without a token is named [PAD<row>]
};

/// Throws ErrorKind::input for a tokenizer that is neither byte-level BPE with rules known to llama.cpp nor
/// sentencepiece BPE, for more tokens than rows, and for special tokens other than BOS and EOS around a text.
GgufVocabulary gguf_vocabulary(const VocabularySource& source);

void put_vocabulary(GgufMetadata& metadata, const GgufVocabulary& vocabulary);

}  // namespace qtrain
