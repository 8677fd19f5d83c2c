#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// The bytes that a token stands for within a text: of a part of a character, those of the part.
std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id);

/// Turns ids that arrive one by one into text; holds back bytes of an unfinished character.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options) : tokenizer_(tokenizer), options_(options) {}
  /// The text that the id adds, possibly empty.
  std::string push(std::int32_t id);
  /// What was held back.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::vector<std::int32_t> ids_;
  std::size_t context_ = 0, visible_ = 0;
};

}  // namespace qtrain
