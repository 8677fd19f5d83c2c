#include "data/shorten.h"

#include <algorithm>

namespace qtrain {
namespace {

struct Turn {
  std::size_t begin = 0;
  TurnLengths lengths;
};

std::vector<Turn> turns_of(const std::vector<bool>& said) {
  std::vector<Turn> turns;
  for (std::size_t at = 0; at < said.size();) {
    Turn turn{.begin = at};
    for (; at < said.size() && !said[at]; ++at) ++turn.lengths.question;
    for (; at < said.size() && said[at]; ++at) ++turn.lengths.answer;
    turns.push_back(turn);
  }
  return turns;
}

void keep(std::vector<bool>& kept, std::size_t begin, std::int64_t count) {
  std::fill_n(kept.begin() + static_cast<std::ptrdiff_t>(begin), count, true);
}

}  // namespace

TurnLengths shortened(TurnLengths turn, std::int64_t room) {
  const auto [question, answer] = turn;
  std::int64_t most = room;  // maximum tokens of the answer
  if (answer * 2 >= room)
    most = question * 2 < room
               ? room - question
               : static_cast<std::int64_t>(static_cast<double>(room) *
                                           (static_cast<double>(answer) / static_cast<double>(question + answer)));
  const std::int64_t kept = std::min(most, answer);
  return {.question = std::min(std::max<std::int64_t>(room - kept, 0), question), .answer = kept};
}

std::vector<bool> kept_tokens(const std::vector<bool>& said, const ShortenRules& rules) {
  std::vector<Turn> turns = turns_of(said);
  if (rules.last_first) std::reverse(turns.begin(), turns.end());
  std::vector<bool> kept(said.size());
  std::int64_t room = rules.room;
  for (const Turn& turn : turns) {
    if (room <= 0) break;
    const TurnLengths lengths = shortened(turn.lengths, room);
    keep(kept, turn.begin, lengths.question);
    keep(kept, turn.begin + static_cast<std::size_t>(turn.lengths.question), lengths.answer);
    room -= lengths.question + lengths.answer;
  }
  return kept;
}

}  // namespace qtrain
