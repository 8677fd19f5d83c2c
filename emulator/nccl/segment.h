#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qtrain::stand_in {

inline constexpr int kMaxRanks = 16;
inline constexpr std::size_t kSlotBytes = std::size_t{1} << 16;

/// What a rank is about to do with another; both ends of an exchange have the same.
struct Descriptor {
  enum Kind : std::int64_t { none, all_reduce, reduce_scatter, broadcast, all_gather, send };
  std::int64_t kind = none, number = 0, type = 0, count = 0, detail = 0;  ///< the operation, the root

  std::string text() const;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

/// The way from one rank to another: a part of a message at a time.
struct Slot {
  std::atomic<std::uint32_t> full;
  std::uint32_t bytes;
  Descriptor what;
  std::byte data[kSlotBytes];
};

struct Member {
  std::atomic<int> claimed, arrived;  ///< somebody is this rank; and has said what follows
  int size, device;
  std::uint64_t host;
};

/// What the ranks of a communicator share. Zeros are its beginning.
struct SharedRanks {
  Member members[kMaxRanks];
  Slot slots[kMaxRanks][kMaxRanks];  ///< from, to
};

/// Shared memory of a name, which is made where it is not there.
class Segment {
 public:
  explicit Segment(std::string name);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SharedRanks* operator->() const { return ranks_; }
  /// It goes with the last process that has it.
  void forget_name() const;

 private:
  std::string name_;
  SharedRanks* ranks_ = nullptr;
};

}  // namespace qtrain::stand_in
