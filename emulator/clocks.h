#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace qtrain::emulation {

/// Happens-before order of the accesses in a block. Each warp has an epoch that advances when its lanes meet, or when
/// one of them arrives at a barrier in shared memory; a thread keeps the epoch of its last meeting or arrival, and a
/// warp knows up to which epoch it has waited for each other warp, and for single threads.
class Clocks {
 public:
  static constexpr std::uint16_t kLast = 0xffff;  ///< epochs stop here; later accesses cannot be ordered

  /// The epochs that happened before something.
  struct View {
    std::array<std::uint16_t, 32> warps{};
    std::array<std::uint16_t, 1024> threads{};

    void add(const View& other) {
      for (std::size_t w = 0; w < warps.size(); ++w) warps[w] = std::max(warps[w], other.warps[w]);
      for (std::size_t t = 0; t < threads.size(); ++t) threads[t] = std::max(threads[t], other.threads[t]);
    }
    bool has(unsigned thread, std::uint16_t epoch) const {
      return warps[thread / 32] >= epoch || threads[thread] >= epoch;
    }
    void add(unsigned thread, std::uint16_t epoch) { threads[thread] = std::max(threads[thread], epoch); }
  };

  void reset() {
    epoch_.fill(1);
    for (View& view : seen_) view.warps.fill(0);
    if (single_)
      for (View& view : seen_) view.threads.fill(0);
    single_ = false;
  }
  std::uint16_t epoch(unsigned warp) const { return epoch_[warp]; }
  /// Starts a new epoch of the warp.
  std::uint16_t advance(unsigned warp) { return epoch_[warp] == kLast ? kLast : ++epoch_[warp]; }
  /// All warps meet at a barrier: each has seen the accesses of the others so far, and starts a new epoch.
  void meet() {
    for (View& view : seen_) view.warps = epoch_;
    for (unsigned w = 0; w < epoch_.size(); ++w) advance(w);
  }
  bool saw(unsigned warp, unsigned thread, std::uint16_t epoch) const {
    return seen_[warp].warps[thread / 32] >= epoch || saw_thread(warp, thread, epoch);
  }
  /// Whether one of the warp's lanes has waited for this thread in particular.
  bool saw_thread(unsigned warp, unsigned thread, std::uint16_t epoch) const {
    return single_ && seen_[warp].threads[thread] >= epoch;
  }
  /// Adds what happened before an arrival of a thread: what its warp has seen, what the warp did before its lanes last
  /// met at `met`, and what the thread itself did up to `epoch`.
  struct Arrival {
    unsigned thread;
    std::uint16_t met, epoch;
  };
  void release(const Arrival& a, View& to) const {
    const unsigned warp = a.thread / 32;
    to.add(seen_[warp]);
    to.warps[warp] = std::max<std::uint16_t>(to.warps[warp], static_cast<std::uint16_t>(a.met - 1));
    to.add(a.thread, a.epoch);
  }
  void acquire(unsigned warp, const View& view) {
    single_ = true;
    seen_[warp].add(view);
  }

 private:
  std::array<std::uint16_t, 32> epoch_{};
  std::array<View, 32> seen_{};
  bool single_ = false;  ///< whether a warp has waited for single threads
};

}  // namespace qtrain::emulation
