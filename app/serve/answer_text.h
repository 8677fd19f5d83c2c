#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/generation/continuous_batch.h"
#include "text/tokenizer/stream_decoder.h"

namespace qtrain::serve {

/// A token of an answer and the text that it adds: all of them, one after the other, are the text of the answer.
struct TextToken {
  std::string text;
  std::string bytes;  ///< its own, also where it is a part of a character and a later token has the text
  double logprob = 0;
  /// What might have been chosen.
  struct Candidate {
    std::int32_t id = 0;
    std::string text, bytes;
    double logprob = 0;
  };
  std::vector<Candidate> top = {};
};

/// The text of an answer as its tokens come. Bytes of an unfinished character are held back, and so is what may become
/// a string that ends the answer.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : tokenizer_(&tokenizer), decoder_(tokenizer, {.skip_special = true}), stop_(std::move(stop)) {}

  struct Piece {
    std::string text;
    std::vector<TextToken> tokens = {};
  };
  /// Adds to `out` what can be shown since; true where a string that ends the answer, which is not a part of it, has
  /// come.
  bool push(const AnswerToken& token, Piece& out);
  /// What was held back.
  void finish(Piece& out);

 private:
  bool take(Piece& out, bool all);
  TextToken text_of(const AnswerToken& token);

  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
  bool holds_bytes_ = false;                               ///< of tokens whose text a later one will have
  std::vector<std::pair<std::size_t, TextToken>> tokens_;  ///< where their text begins in held_
};

}  // namespace qtrain::serve
