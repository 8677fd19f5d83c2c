#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "core/keyed_hash.h"

namespace qtrain::emulation {

/// What a block did before a barrier: the accesses of each warp up to an epoch.
struct Released {
  std::uint32_t block = 0;
  std::array<std::uint16_t, 32> epochs{};
};

/// The last release of each value in device memory by a block of the launch that is running.
class Releases {
 public:
  void store(int* p, int value, const Released& released);
  /// Returns the value; `released` is changed if a block has released it.
  int load(const int* p, Released& released);
  /// Ends the launch: blocks that wait for others would wait forever.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::unordered_map<const int*, Released> last_;
};

/// What a block knows of other blocks, because one of its threads has acquired a value that they had released. The
/// others know it after the next barrier.
class Acquired {
 public:
  void reset() {
    of_.clear();
    barriers_ = 0;
  }
  void pass_barrier() { ++barriers_; }
  void add(unsigned thread, const Released& released) { of_[released.block] = {released, thread, barriers_}; }
  /// Whether `thread` knows of the access of another block's warp in an epoch.
  bool covers(unsigned thread, std::uint32_t block, unsigned warp, std::uint16_t epoch) const {
    const auto found = of_.find(block);
    if (found == of_.end()) return false;
    const Entry& entry = found->second;
    return epoch <= entry.released.epochs[warp] && (entry.thread == thread || entry.barriers < barriers_);
  }

 private:
  struct Entry {
    Released released;
    unsigned thread, barriers;
  };
  std::unordered_map<std::uint32_t, Entry, KeyedHash> of_;
  unsigned barriers_ = 0;
};

}  // namespace qtrain::emulation
