#pragma once
#include <array>
#include <cstdint>

namespace qtrain::emulation {

/// Happens-before order of the accesses in a block. Each warp has an epoch that advances when its lanes meet; a thread
/// keeps the epoch of its last meeting, and a warp knows up to which epoch it has waited for each other warp.
class Clocks {
 public:
  static constexpr std::uint16_t kLast = 0xffff;  ///< epochs stop here; later accesses cannot be ordered

  void reset() {
    epoch_.fill(1);
    for (auto& row : seen_) row.fill(0);
  }
  std::uint16_t epoch(unsigned warp) const { return epoch_[warp]; }
  /// Starts a new epoch of the warp.
  std::uint16_t advance(unsigned warp) { return epoch_[warp] == kLast ? kLast : ++epoch_[warp]; }
  /// All warps meet at a barrier: each has seen the accesses of the others so far, and starts a new epoch.
  void meet() {
    for (auto& row : seen_) row = epoch_;
    for (unsigned w = 0; w < epoch_.size(); ++w) advance(w);
  }
  bool saw(unsigned warp, unsigned other, std::uint16_t epoch) const { return seen_[warp][other] >= epoch; }

 private:
  std::array<std::uint16_t, 32> epoch_{};
  std::array<std::array<std::uint16_t, 32>, 32> seen_{};
};

}  // namespace qtrain::emulation
