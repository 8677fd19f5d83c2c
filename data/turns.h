#pragma once
#include <cstddef>
#include <vector>

#include "core/formats/json.h"
#include "text/template/rendered.h"

namespace qtrain {

/// Which messages of a conversation say that they are not to be learned (`is_learned`).
struct TurnSwitches {
  std::vector<bool> learned;    ///< of each message
  bool any_off = false;         ///< one is not to be learned
  bool all_others_off = false;  ///< no message but the assistant's is to be learned
  std::size_t others_off = 0;   ///< messages that are not the assistant's
};

/// Messages before `first` are not learned anyway: what they say of it does not matter.
TurnSwitches switches_of(const Json& messages, std::size_t first);

/// The turns of the assistant, by whether they are learned.
struct SplitTurns {
  TextRanges learned, unlearned;
  bool placed = true;  ///< false: the ranges are not one for each of its messages
};
/// `ranges` are those of the assistant's messages from `first` on.
SplitTurns split_turns(const TextRanges& ranges, const Json& messages, const TurnSwitches& switches, std::size_t first);

}  // namespace qtrain
