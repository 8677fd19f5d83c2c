#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// The bytes that a token represents within a text; possibly only a part of a character.
std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id);

/// Converts ids that arrive one by one to text; holds back the bytes of an incomplete character.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options) : tokenizer_(tokenizer), options_(options) {}
  /// Returns the text that the id adds, possibly empty.
  std::string push(std::int32_t id);
  /// Returns what was held back.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::vector<std::int32_t> ids_;
  std::size_t context_ = 0, visible_ = 0;
};

}  // namespace qtrain
