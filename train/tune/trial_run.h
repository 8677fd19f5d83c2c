#pragma once
#include "train/run/optimizer_steps.h"

namespace qtrain {

/// A run whose steps are only measured: it has the weights and the memory of a real one, and writes nothing.
class TrialRun {
 public:
  /// The rows must have been loaded by load_run_data, and must outlive this. Errors: those of allocate_run_model and
  /// load_weights.
  TrialRun(const RunContext& run, RunData& data);

  StepOutcome next() { return steps_.next(); }
  const RunModel& model() const { return model_; }

 private:
  RunModel model_;
  RunState state_;
  OptimizerSteps steps_;
};

/// Optimizer steps until a device is as fast as it will be: kernels are chosen in the first, graphs are recorded in the
/// second.
std::int64_t warm_up_steps(Device device);

}  // namespace qtrain
