#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/gguf_write.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// A tokenizer as GGUF keeps it.
struct GgufVocabulary {
  std::string model, pre;           ///< tokenizer.ggml.model and .pre
  std::vector<std::string> tokens;  ///< one per row of the embedding
  std::vector<std::int32_t> types;
  std::vector<float> scores;        ///< sentencepiece only
  std::vector<std::string> merges;  ///< byte-level BPE only
  std::optional<bool> add_space_prefix;
  std::vector<std::string> notes;  ///< what GGUF cannot say about it, for people
};

struct VocabularySource {
  std::filesystem::path folder;  ///< with tokenizer.json or tokenizer.model
  const Tokenizer& tokenizer;    ///< of that folder
  std::int64_t rows = 0;         ///< of the embedding; those without a token get the name [PAD<row>]
};

/// Errors (ErrorKind::input): a tokenizer that neither byte-level BPE with rules that llama.cpp has a name for nor
/// sentencepiece BPE stands for; more tokens than rows; special tokens around a text other than BOS and EOS.
GgufVocabulary gguf_vocabulary(const VocabularySource& source);

void put_vocabulary(GgufMetadata& metadata, const GgufVocabulary& vocabulary);

}  // namespace qtrain
