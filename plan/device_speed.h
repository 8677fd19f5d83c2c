#pragma once
#include <cstdint>
#include <optional>

#include "data/token_rows.h"
#include "plan/gpus.h"
#include "plan/kernel_times.h"
#include "plan/memory_plan.h"

namespace qtrain {

/// A prediction for a slow, a usual and a fast case.
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

/// Speed of a GPU's kernels, which run one after another.
struct KernelSpeed {
  AttentionSeconds attention;
  double skinny = 0;       ///< bytes/s of the GEMMs of adapters
  double gap_seconds = 0;  ///< from one launch to the next
};

/// Speed that a device is assumed to reach.
struct DeviceSpeed {
  double flops = 0;                         ///< FLOP/s of GEMMs; without `kernels`, including the work between them
  double bandwidth = 0;                     ///< memory bandwidth, bytes/s
  std::optional<double> loading;            ///< tokens/s that the host prepares; empty if unknown
  std::optional<KernelSpeed> kernels = {};  ///< if the kernels between GEMMs are timed separately
};

/// Fractions of a GPU's data-sheet peaks that runs reach: over all work, and by kernel.
struct SheetShares {
  double flops = 0, bandwidth = 0;
  std::optional<KernelShares> kernels = {};
};
/// Fractions for a model of this width. With `mfu`, all three cases are the same, and there are none by kernel.
Ranged<SheetShares> sheet_shares(std::int64_t hidden_size, std::optional<double> mfu = {});

/// Speed of this processor, measured now; of a GPU, from its data sheet.
Ranged<DeviceSpeed> measured_speed(MatmulPrecision matmul, int threads);
Ranged<DeviceSpeed> published_speed(const GpuModel& gpu, MatmulPrecision matmul, const Ranged<SheetShares>& shares);

/// The work that a device does.
struct ComputedThere {
  MatmulPrecision matmul;
  int threads = 1;
  std::int64_t hidden_size = 0;
};
/// Speed of a device of this machine; empty for an unknown GPU.
std::optional<Ranged<DeviceSpeed>> speed_here(const TargetDevice& target, const ComputedThere& computed);
/// Tokens/s at which one thread makes micro-batches of `micro_batch_size` of these rows.
double loading_speed(const Dataset& rows, std::int64_t micro_batch_size);

}  // namespace qtrain
