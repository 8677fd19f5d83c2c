#pragma once
#include <cstdint>
#include <vector>

namespace qtrain {

/// Token counts of a question and its answer.
struct TurnLengths {
  std::int64_t question = 0, answer = 0;
  friend bool operator==(const TurnLengths&, const TurnLengths&) = default;
};

/// How many of the first tokens of each remain in `room` tokens: the whole answer if it takes less than half of the
/// room; otherwise the whole question if that does; otherwise both in proportion. Source: infer_seqlen of LLaMA-Factory
/// 0.9.5.
TurnLengths shortened(TurnLengths turn, std::int64_t room);

struct ShortenRules {
  std::int64_t room = 0;    ///< maximum tokens of the row
  bool last_first = false;  ///< give room to the last turns first
};
/// Which tokens of a conversation remain when truncated as in LLaMA-Factory: turn by turn, each in the room left by
/// earlier ones. `said` marks tokens of answers; those before an answer are its question.
std::vector<bool> kept_tokens(const std::vector<bool>& said, const ShortenRules& rules);

}  // namespace qtrain
