#pragma once
#include <cstdint>
#include <vector>

namespace qtrain {

/// Tokens of a question and of its answer.
struct TurnLengths {
  std::int64_t question = 0, answer = 0;
  friend bool operator==(const TurnLengths&, const TurnLengths&) = default;
};

/// How many of them stay where there is room for `room` tokens, the first ones of each: the answer whole if it takes
/// less than half of the room; else the question whole if that does; else of both as many as their share.
/// Source: infer_seqlen of LLaMA-Factory 0.9.5.
TurnLengths shortened(TurnLengths turn, std::int64_t room);

struct ShortenRules {
  std::int64_t room = 0;    ///< tokens of the row
  bool last_first = false;  ///< room goes to the last turns before it goes to the first
};
/// Which tokens of a conversation stay, as LLaMA-Factory cuts it: turn by turn, each in the room that those before it
/// leave. `said` are those of answers; what stands before an answer is its question.
std::vector<bool> kept_tokens(const std::vector<bool>& said, const ShortenRules& rules);

}  // namespace qtrain
