#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/load.h"

namespace qtrain {

/// The contents of a tokenizer.model that the sentencepiece library does not expose.
struct SentencePieceModel {
  enum class Kind : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum class Algorithm : std::int32_t { unigram = 1, bpe = 2, word = 3, characters = 4 };
  struct Entry {
    std::string text;
    float score = 0;
    Kind kind = Kind::normal;
  };

  std::vector<Entry> pieces;
  Algorithm algorithm = Algorithm::unigram;
  bool normalizes = false;  ///< characters are first replaced by means of a precompiled map
  bool add_dummy_prefix = true, remove_extra_whitespaces = true;
};

/// Throws ErrorKind::input if the file is not such a model. Source: sentencepiece_model.proto of sentencepiece.
SentencePieceModel read_sentencepiece_model(const std::filesystem::path& file);

/// The tokenizer of a folder with tokenizer.model.
std::unique_ptr<Tokenizer> load_sentencepiece(const TokenizerSettings& settings);

}  // namespace qtrain
