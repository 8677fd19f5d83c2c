#include "dist/rank_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/formats/json.h"

namespace qtrain {

std::string RankWait::text() const {
  return fmt::format("collective {}, {}", number, call);
}

bool RankWait::differs_from(const RankWait& other) const {
  if (number < other.number) return other.differs_from(*this);
  const auto ahead = static_cast<std::size_t>(number - other.number);
  if (ahead == 0) return sequence != other.sequence;
  return ahead <= before.size() && before[ahead - 1] != other.sequence;
}

const RankWait* RankAnswer::in(std::string_view group) const {
  const auto it = std::ranges::find_if(waits, [&](const RankWait& w) { return w.group == group; });
  return it == waits.end() ? nullptr : &*it;
}

std::string text_of(const RankAnswer& answer) {
  Json waits = Json::array();
  for (const RankWait& w : answer.waits)
    waits.push_back({w.group, w.first, w.stride, w.size, w.number, w.sequence, w.before, w.call});
  return dump_json({{"waits", waits}, {"device_waits", answer.device_waits}});
}

RankAnswer rank_answer_of(std::string_view text) {
  const Json json = parse_json(text, "the report of a rank");
  RankAnswer answer{.device_waits = json.at("device_waits").get<bool>()};
  for (const Json& w : json.at("waits"))
    answer.waits.push_back({.group = w.at(0),
                            .first = w.at(1),
                            .stride = w.at(2),
                            .size = w.at(3),
                            .number = w.at(4),
                            .sequence = w.at(5),
                            .before = w.at(6).get<std::vector<std::uint64_t>>(),
                            .call = w.at(7)});
  return answer;
}

namespace {

struct PlacedWait {
  int rank;
  const RankWait* wait;
};

// The ranks that are in a call of the same number but not in the same call. If there are none, all ranks, provided that
// their earlier calls differ.
std::vector<PlacedWait> clearest_mismatch(const std::vector<RankWait>& waits, Behind behind) {
  std::map<std::int64_t, std::vector<PlacedWait>> by_number;
  std::vector<PlacedWait> all;
  for (const RankWait& w : waits) {
    all.push_back({w.rank(static_cast<int>(all.size())), &w});
    by_number[w.number].push_back(all.back());
  }
  const auto differs = [&](const PlacedWait& p) {
    return p.wait->sequence != by_number[p.wait->number].front().wait->sequence;
  };
  for (const auto& [number, placed] : by_number)
    if (std::ranges::any_of(placed, differs)) return placed;
  const bool apart = std::ranges::any_of(waits, [&](const RankWait& w) { return w.differs_from(waits.front()); });
  return apart || behind == Behind::is_stuck ? all : std::vector<PlacedWait>();
}

}  // namespace

// Contrasts the call that most ranks are in with one that the fewest are in.
std::string different_calls(const std::vector<RankWait>& waits, Behind behind) {
  const std::vector<PlacedWait> placed = clearest_mismatch(waits, behind);
  if (placed.empty()) return {};
  std::map<std::uint64_t, int> counts;
  for (const PlacedWait& p : placed) ++counts[p.wait->sequence];
  if (counts.size() < 2) return {};
  const auto ranks_there = [&](const PlacedWait& p) { return counts.at(p.wait->sequence); };
  const PlacedWait usual = *std::ranges::max_element(placed, {}, ranks_there);
  PlacedWait odd = usual;
  for (const PlacedWait& p : placed)
    if (p.wait->sequence != usual.wait->sequence && (odd.rank == usual.rank || ranks_there(p) <= ranks_there(odd)))
      odd = p;
  const char* before = odd.wait->text() == usual.wait->text() ? ", after different calls" : "";
  return fmt::format("the ranks make different calls: rank {} waits in {}{}; rank {} in {}", odd.rank, odd.wait->text(),
                     before, usual.rank, usual.wait->text());
}

}  // namespace qtrain
