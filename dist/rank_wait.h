#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qtrain {

/// A call in which a rank waits for others.
struct RankWait {
  std::string group;                       ///< the collective that it belongs to, by a name that all its ranks know
  int first = 0, stride = 1, size = 1;     ///< the ranks of that
  std::int64_t number = 0;                 ///< of the calls there
  std::uint64_t sequence = 0;              ///< a hash of all calls there up to this one
  std::vector<std::uint64_t> before = {};  ///< the same up to the calls before, the last one first
  std::string call = {};                   ///< for people

  /// The rank in the run of number i there.
  int rank(int i) const { return first + stride * i; }
  bool operator==(const RankWait&) const = default;
  /// Whether the calls of both are known, as far back as one of them is, to have been others. Who is behind may come
  /// yet.
  bool differs_from(const RankWait& other) const;
  /// "collective 12, all_reduce of 8 float32"
  std::string text() const;
};

/// What a rank reports that it is doing.
struct RankAnswer {
  std::vector<RankWait> waits = {};
  bool device_waits = false;

  bool computes() const { return waits.empty() && !device_waits; }
  /// Its wait in that collective; null: it does not wait there.
  const RankWait* in(std::string_view group) const;
};

/// To and from a value in the store.
std::string text_of(const RankAnswer& answer);
RankAnswer rank_answer_of(std::string_view text);

/// What is thought of a rank that waits in an earlier call than others and has come by the same calls.
enum class Behind : std::uint8_t { may_come, is_stuck };
/// What ranks wait in that all wait in the same collective, in order, from rank `first` on: the words for it where they
/// have done different things, naming the fewest ranks; empty where they have not.
std::string different_calls(const std::vector<RankWait>& waits, Behind behind = Behind::may_come);

}  // namespace qtrain
