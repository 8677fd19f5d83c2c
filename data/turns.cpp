#include "data/turns.h"

#include "data/row_shapes.h"
#include "text/template/message.h"

namespace qtrain {

TurnSwitches switches_of(const Json& messages, std::size_t first) {
  TurnSwitches out{.learned = std::vector<bool>(messages.size(), true)};
  std::size_t others = 0;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const bool learned = is_learned(messages[i]), other = !is_assistant(messages[i]);
    out.learned[i] = learned;
    out.any_off = out.any_off || !learned;
    others += other;
    out.others_off += other && !learned;
  }
  out.all_others_off = others > 0 && out.others_off == others;
  return out;
}

SplitTurns split_turns(const TextRanges& ranges, const Json& messages, const TurnSwitches& switches,
                       std::size_t first) {
  if (!switches.any_off) return {.learned = ranges, .unlearned = {}};
  std::vector<std::size_t> turns;
  for (std::size_t i = first; i < messages.size(); ++i)
    if (is_assistant(messages[i])) turns.push_back(i);
  SplitTurns out{.placed = turns.size() == ranges.size()};
  for (std::size_t t = 0; out.placed && t < turns.size(); ++t)
    (switches.learned[turns[t]] ? out.learned : out.unlearned).push_back(ranges[t]);
  return out;
}

}  // namespace qtrain
