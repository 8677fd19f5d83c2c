#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace qtrain {

/// A tokenizer.model as its file says it, for what the sentencepiece library does not tell.
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
  bool normalizes = false;  ///< characters are replaced by others first (a precompiled map)
  bool add_dummy_prefix = true, remove_extra_whitespaces = true;
};

/// Errors (ErrorKind::input): not such a file.
/// Source: sentencepiece_model.proto of sentencepiece.
SentencePieceModel read_sentencepiece_model(const std::filesystem::path& file);

}  // namespace qtrain
