#pragma once
#include <cstddef>
#include <vector>

#include "core/formats/json.h"
#include "text/template/rendered.h"

namespace qtrain {

/// Which messages of a conversation are excluded from the loss (`is_learned`).
struct TurnSwitches {
  std::vector<bool> learned;    ///< per message
  bool any_off = false;         ///< at least one is excluded
  bool all_others_off = false;  ///< all messages except the assistant's are excluded
  std::size_t others_off = 0;   ///< number of excluded messages that are not the assistant's
};

/// Ignores messages before `first`, which are not learned anyway.
TurnSwitches switches_of(const Json& messages, std::size_t first);

/// The assistant's turns, split by whether they are learned.
struct SplitTurns {
  TextRanges learned, unlearned;
  bool placed = true;  ///< false: the ranges do not match the assistant messages one to one
};
/// `ranges` are those of the assistant's messages from `first` on.
SplitTurns split_turns(const TextRanges& ranges, const Json& messages, const TurnSwitches& switches, std::size_t first);

}  // namespace qtrain
