#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// A call in which a rank waits for others.
struct RankWait {
  std::string group;                       ///< name of the collective that it belongs to, the same on all its ranks
  int first = 0, stride = 1, size = 1;     ///< the ranks of that collective
  std::int64_t number = 0;                 ///< number of the call in that collective
  std::uint64_t sequence = 0;              ///< a hash of its calls up to this one
  std::vector<std::uint64_t> before = {};  ///< the same up to each earlier call, most recent first
  std::string call = {};                   ///< description for messages

  /// The global rank of rank `i` of the collective.
  int rank(int i) const { return first + stride * i; }
  bool operator==(const RankWait&) const = default;
  /// Whether both ranks are known to have made different calls up to the earlier of the two. One that is behind may
  /// still arrive.
  bool differs_from(const RankWait& other) const;
  /// "collective 12, all_reduce of 8 float32"
  std::string text() const;
};

/// What a rank reports that it is doing.
struct RankAnswer {
  std::vector<RankWait> waits = {};
  bool device_waits = false;

  bool computes() const { return waits.empty() && !device_waits; }
  /// Its wait in that collective; null if it does not wait there.
  const RankWait* in(std::string_view group) const;
};

/// Conversion to and from a value in the store.
std::string text_of(const RankAnswer& answer);
RankAnswer rank_answer_of(std::string_view text);

/// How to judge a rank that waits in an earlier call than others, after the same calls.
enum class Behind : std::uint8_t { may_come, is_stuck };
/// Describes how ranks that wait in the same collective have made different calls, naming the fewest ranks; empty if
/// they have not. `waits` has one entry for each rank of the collective, in order.
std::string different_calls(const std::vector<RankWait>& waits, Behind behind = Behind::may_come);

}  // namespace qtrain
