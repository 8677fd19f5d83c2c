#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qtrain::stand_in {

inline constexpr int kMaxRanks = 16;
inline constexpr std::size_t kSlotBytes = std::size_t{1} << 16;

/// What a rank is about to do with another rank; both ends of an exchange must have the same.
struct Descriptor {
  enum Kind : std::int64_t { none, all_reduce, reduce_scatter, broadcast, all_gather, send };
  std::int64_t kind = none, number = 0, type = 0, count = 0, detail = 0;  ///< detail: operation or root

  std::string text() const;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

/// The channel from one rank to another: holds one piece of a message at a time.
struct Slot {
  std::atomic<std::uint32_t> full;
  std::uint32_t bytes;
  Descriptor what;
  std::byte data[kSlotBytes];
};

struct Member {
  std::atomic<int> claimed, arrived;  ///< claimed: the rank has a process; arrived: the fields below are valid
  int size, device;
  std::uint64_t host;
};

/// Memory shared by the ranks of a communicator; initially zero.
struct SharedRanks {
  Member members[kMaxRanks];
  Slot slots[kMaxRanks][kMaxRanks];  ///< [sender][receiver]
};

/// Named shared memory, which is created if it does not exist.
class Segment {
 public:
  explicit Segment(std::string name);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SharedRanks* operator->() const { return ranks_; }
  /// Removes the name; the memory is freed when the last process unmaps it.
  void forget_name() const;

 private:
  std::string name_;
  SharedRanks* ranks_ = nullptr;
};

}  // namespace qtrain::stand_in
