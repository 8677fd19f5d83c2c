#pragma once
#include <memory>

#include "train/run/optimizer_steps.h"

namespace qtrain {

/// A run for measuring steps only: it has the weights and memory of a real one but writes nothing.
class TrialRun {
 public:
  /// `data` must come from load_run_data; it gets the batches of this run's config. Throws as allocate_run_model and
  /// load_weights do.
  TrialRun(const RunContext& context, std::shared_ptr<RunData> data);

  StepOutcome next() { return steps_.next(); }
  const RunModel& model() const { return run_.model; }

 private:
  Run run_;
  OptimizerSteps steps_;
};

/// Optimizer steps until a device reaches full speed: the first one autotunes kernels, the second one records graphs.
std::int64_t warm_up_steps(Device device);

}  // namespace qtrain
