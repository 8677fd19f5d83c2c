#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/keyed_hash.h"
#include "emulator/clocks.h"

namespace qtrain::emulation {

/// What had happened in a block when one of its threads released a value, as far as the thread knew.
struct Released {
  std::uint32_t block;
  Clocks::View before;
};

/// The last release of each value in device memory by a block of the launch that is running.
class Releases {
 public:
  void store(int* p, int value, std::shared_ptr<const Released> released);
  struct Loaded {
    int value, before;                         ///< before: until the last release
    std::shared_ptr<const Released> released;  ///< null if no block has released it
  };
  Loaded load(const int* p);
  /// Ends the launch: blocks that wait for others would wait forever.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  struct Last {
    int before = 0;
    std::shared_ptr<const Released> released;
  };
  std::unordered_map<const int*, Last> last_;
};

/// What threads of a block know of other blocks, because they have acquired values that those had released. Other
/// threads of the block know it once they have waited for them.
class Acquired {
 public:
  struct Entry {
    std::shared_ptr<const Released> released;
    unsigned thread;
    std::uint16_t epoch;  ///< of the thread that acquired it
  };
  void reset() { of_.clear(); }
  void add(Entry entry) {
    std::vector<Entry>& of = of_[entry.released->block];
    if (of.empty() || of.back().released != entry.released || of.back().thread != entry.thread)
      of.push_back(std::move(entry));
  }
  bool has(const std::shared_ptr<const Released>& released) const {
    const auto found = of_.find(released->block);
    return found != of_.end() && std::any_of(found->second.rbegin(), found->second.rend(),
                                             [&](const Entry& e) { return e.released == released; });
  }
  /// Whether one of the entries that `known` holds for includes the access of another block's thread in an epoch.
  template <class F>
  bool cover(std::uint32_t block, unsigned thread, std::uint16_t epoch, const F& known) const {
    const auto found = of_.find(block);
    if (found == of_.end()) return false;
    return std::any_of(found->second.rbegin(), found->second.rend(),
                       [&](const Entry& e) { return e.released->before.has(thread, epoch) && known(e); });
  }

 private:
  std::unordered_map<std::uint32_t, std::vector<Entry>, KeyedHash> of_;
};

}  // namespace qtrain::emulation
