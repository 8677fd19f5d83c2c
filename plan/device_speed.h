#pragma once
#include <cstdint>
#include <optional>

#include "data/token_rows.h"
#include "plan/gpus.h"
#include "plan/memory_plan.h"

namespace qtrain {

/// A prediction with the least, the usual and the most that a device is taken to reach.
template <class T>
struct Ranged {
  T slow, usual, fast;

  template <class F>
  auto map(F&& of) const -> Ranged<decltype(of(usual))> {
    return {of(slow), of(usual), of(fast)};
  }
};

template <class T>
Ranged<T> alike(const T& value) {
  return {value, value, value};
}

/// What a device is taken to reach.
struct DeviceSpeed {
  double flops = 0;               ///< floating-point operations a second, in GEMMs and what is between them
  double bandwidth = 0;           ///< bytes a second of its memory
  std::optional<double> loading;  ///< tokens a second that the host prepares; none: not known
};

/// Shares of a card's data sheet that runs reach.
struct SheetShares {
  double flops = 0, bandwidth = 0;
};
/// Of a model so wide; of all three cases the same where the share of the operations is given.
Ranged<SheetShares> sheet_shares(std::int64_t hidden_size, std::optional<double> mfu = {});

/// A processor as it is measured now; a card by its data sheet.
Ranged<DeviceSpeed> measured_speed(MatmulPrecision matmul, int threads);
Ranged<DeviceSpeed> published_speed(const GpuModel& gpu, MatmulPrecision matmul, const Ranged<SheetShares>& shares);

/// What runs on a device.
struct ComputedThere {
  MatmulPrecision matmul;
  int threads = 1;
  std::int64_t hidden_size = 0;
};
/// Of a device that is here: none for a card that is not known.
std::optional<Ranged<DeviceSpeed>> speed_here(const TargetDevice& target, const ComputedThere& computed);
/// Tokens a second that one thread puts into micro-batches of so many of these rows.
double loading_speed(const Dataset& rows, std::int64_t micro_batch_size);

}  // namespace qtrain
