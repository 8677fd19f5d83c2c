#pragma once
#include <string_view>

#include "plan/device_speed.h"
#include "plan/memory_plan.h"
#include "plan/training_flops.h"

namespace qtrain {

/// Bandwidth between host and GPU, bytes/s.
inline constexpr double kHostBandwidth = 24e9;

/// Seconds of an optimizer step. Computation, memory traffic, host transfers and data loading overlap, so the longest
/// of them counts; the GEMMs of adapters and the update of the weights come on top. On a GPU with known kernels
/// (`serial`), these run one after another: computing is the GEMMs, attention is apart, and memory is the element-wise
/// kernels.
struct StepTime {
  double computing = 0, memory = 0, host = 0, loading = 0;
  double adapters = 0, update = 0;
  double attention = 0, gaps = 0;
  bool serial = false;

  double seconds() const;
  /// The largest part: "compute", "attention", "memory bandwidth", "data loading", "the link to the host", "the passes
  /// of adapters", "the launches" or "the update of the weights".
  std::string_view limit() const;
};

/// Size of an optimizer step: number of micro-batches and tokens in each. Times are computed from the minimum memory
/// traffic of each op and from training_flops.
struct StepWork {
  TokenMix mix;
  double micro_batch_tokens = 0;
  double micro_batches = 1;

  double tokens() const { return micro_batch_tokens * micro_batches; }
};
/// The steps of these rows with the micro-batches of a config.
StepWork step_work(const Dataset& rows, const TrainingSection& t);
/// The same number of tokens in the micro-batches of another config.
StepWork rebatched(StepWork work, const TrainingSection& t);
StepTime step_time(const PlannedRun& run, const StepWork& work, const DeviceSpeed& speed);
Ranged<StepTime> step_time(const PlannedRun& run, const StepWork& work, const Ranged<DeviceSpeed>& speed);

/// Seconds that a block, or the head, takes for one micro-batch on a GPU or processor, by kind of kernel.
struct PassTime {
  double gemms = 0, attention = 0, elements = 0, adapters = 0, gaps = 0;

  double seconds() const { return gemms + attention + elements + adapters + gaps; }
  PassTime times(double n) const;
  PassTime& operator+=(const PassTime& other);
};
/// The passes of a micro-batch: per block, where the backward pass includes recomputing the block; the head; and in
/// total what other blocks recompute for their inputs. Without `speed.kernels`, only GEMMs and adapters take time.
struct PassTimes {
  PassTime forward, backward, head, inputs;
};
PassTimes pass_times(const PlannedRun& run, const TokenMix& mix, double tokens, const DeviceSpeed& speed);

/// Bytes that an update of the weights reads and writes on the device and, for offloaded weights or states, on the
/// host.
struct UpdateTraffic {
  double device = 0, host = 0;
};
UpdateTraffic update_traffic(const PlannedRun& run);

}  // namespace qtrain
