#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/generation/continuous_batch.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain::serve {

/// A token of an answer and the text that it adds. The texts of all tokens, joined, are the text of the answer.
struct TextToken {
  std::string text;
  std::string bytes;  ///< bytes of this token, even if the text comes with a later token that completes the character
  double logprob = 0;
  /// One of the most likely tokens at this position.
  struct Candidate {
    std::int32_t id = 0;
    std::string text, bytes;
    double logprob = 0;
  };
  std::vector<Candidate> top = {};
};

/// Turns the tokens of an answer into text as they arrive. Holds back the bytes of an incomplete character, and text
/// that may be the beginning of a stop string.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : tokenizer_(&tokenizer), decoder_(tokenizer, {.skip_special = true}), stop_(std::move(stop)) {}

  struct Piece {
    std::string text;
    std::vector<TextToken> tokens = {};
  };
  /// Appends to `out` the text that can be shown now. Returns true once a stop string is complete, which is not part of
  /// the answer.
  bool push(const AnswerToken& token, Piece& out);
  /// Appends the text that was held back.
  void finish(Piece& out);

 private:
  bool take(Piece& out, bool all);
  TextToken text_of(const AnswerToken& token);

  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
  bool holds_bytes_ = false;                               ///< whether a character is still incomplete
  std::vector<std::pair<std::size_t, TextToken>> tokens_;  ///< each with the offset of its text in held_
};

}  // namespace qtrain::serve
