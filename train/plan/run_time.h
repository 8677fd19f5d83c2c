#pragma once
#include <optional>
#include <string_view>

#include "train/plan/gpus.h"
#include "train/plan/memory_plan.h"
#include "train/plan/training_flops.h"

namespace qtrain {

/// What a device is taken to reach.
struct DeviceSpeed {
  double flops = 0;               ///< floating-point operations a second, in GEMMs and what is between them
  double bandwidth = 0;           ///< bytes a second of its memory
  std::optional<double> loading;  ///< tokens a second that the host prepares; none: not known
};

/// Bytes a second between a host and its GPU.
inline constexpr double kHostBandwidth = 24e9;

/// Seconds of an optimizer step. What passes compute, read and write, exchange with the host and load is beside each
/// other, so that the longest of these counts; the update of the weights is behind them.
struct StepTime {
  double computing = 0, memory = 0, host = 0, loading = 0;
  double update = 0;

  double seconds() const;
  /// What most of it hangs on: "compute", "memory bandwidth", "data loading", "the link to the host" or "the update of
  /// the weights".
  std::string_view limit() const;
};

/// Of so many micro-batches with so many tokens each. Source: floors of memory traffic of each op, GEMMs by
/// training_flops.
struct StepWork {
  TokenMix mix;
  double micro_batch_tokens = 0;
  double micro_batches = 1;
};
/// Of these rows in the micro-batches of a config.
StepWork step_work(const Dataset& rows, const TrainingSection& t);
/// The same rows in micro-batches of another size.
StepWork rebatched(StepWork work, const TrainingSection& t);
StepTime step_time(const PlannedRun& run, const StepWork& work, const DeviceSpeed& speed);

/// Bytes that an update reads and writes where the weights are, and where they or the state are on the host, there.
struct UpdateTraffic {
  double device = 0, host = 0;
};
UpdateTraffic update_traffic(const PlannedRun& run);

/// Of a device that is here: a processor as it is measured now, a card that is known by its data sheet; none for
/// others.
std::optional<DeviceSpeed> speed_here(const TargetDevice& target, MatmulPrecision matmul, int threads);
/// A processor as it is measured now; a card by its data sheet, of which a run reaches the share `mfu`.
DeviceSpeed measured_speed(MatmulPrecision matmul, int threads);
DeviceSpeed published_speed(const GpuModel& gpu, MatmulPrecision matmul, double mfu);
/// Tokens a second that one thread puts into micro-batches of so many of these rows.
double loading_speed(const Dataset& rows, std::int64_t micro_batch_size);

}  // namespace qtrain
