#pragma once
#include <string_view>

#include "plan/device_speed.h"
#include "plan/memory_plan.h"
#include "plan/training_flops.h"

namespace qtrain {

/// Bytes a second between a host and its GPU.
inline constexpr double kHostBandwidth = 24e9;

/// Seconds of an optimizer step. What passes compute, read and write, exchange with the host and load is beside each
/// other, so that the longest of these counts; the GEMMs of adapters are between those of their layers, and the update
/// of the weights is behind them.
struct StepTime {
  double computing = 0, memory = 0, host = 0, loading = 0;
  double adapters = 0, update = 0;

  double seconds() const;
  /// What most of it hangs on: "compute", "memory bandwidth", "data loading", "the link to the host", "the passes of
  /// adapters" or "the update of the weights".
  std::string_view limit() const;
};

/// Of so many micro-batches with so many tokens each. Source: floors of memory traffic of each op, GEMMs by
/// training_flops.
struct StepWork {
  TokenMix mix;
  double micro_batch_tokens = 0;
  double micro_batches = 1;

  double tokens() const { return micro_batch_tokens * micro_batches; }
};
/// Of these rows in the micro-batches of a config.
StepWork step_work(const Dataset& rows, const TrainingSection& t);
/// The same rows in micro-batches of another size.
StepWork rebatched(StepWork work, const TrainingSection& t);
StepTime step_time(const PlannedRun& run, const StepWork& work, const DeviceSpeed& speed);
Ranged<StepTime> step_time(const PlannedRun& run, const StepWork& work, const Ranged<DeviceSpeed>& speed);

/// Bytes that an update reads and writes where the weights are, and where they or the state are on the host, there.
struct UpdateTraffic {
  double device = 0, host = 0;
};
UpdateTraffic update_traffic(const PlannedRun& run);

}  // namespace qtrain
