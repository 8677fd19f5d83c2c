#pragma once
#include <cstdint>
#include <optional>

#include "data/prefetch.h"
#include "train/run/run.h"

namespace qtrain {

/// The outcome of one optimizer step.
struct StepOutcome {
  double loss = 0, grad_norm = 0, learning_rate = 0;
  double router_loss = 0;           ///< summed over all micro-batches, without its coefficient
  std::int64_t router_batches = 0;  ///< micro-batches that contributed to it
  std::int64_t tokens = 0;
  double data_wait = 0;  ///< seconds spent waiting for a batch
  double seconds = 0;    ///< duration of the whole step
  double computing = 0;  ///< seconds that this rank spent on its micro-batches (CPU runs)
};

/// Runs the optimizer steps one after another: gradients are accumulated over the micro-batches of a step, then one
/// update is made, which is skipped if the loss or a gradient is not finite. Background threads prefetch batches.
class OptimizerSteps {
 public:
  /// `run` must outlive this object. Starts with the step after those counted in its state.
  explicit OptimizerSteps(Run& run);

  /// Runs the next step and counts it in the state. Throws ErrorKind::non_finite after run.max_nonfinite_steps
  /// consecutive non-finite steps, before they can get into a checkpoint.
  StepOutcome next();

 private:
  struct Normalization {
    double per_target;  ///< 1 / targets of the step
    double loss_scale;  ///< for float16
    double per_batch;   ///< factor of each micro-batch's router loss
  };

  /// Totals of the next step's micro-batches over all ranks.
  struct Contents {
    std::int64_t targets = 0, tokens = 0, batches = 0;
  };
  Contents contents() const;
  Batch take(std::int64_t batch);
  double seconds_of_keys() const;
  std::optional<RowNoise> noise_of_batch(std::int64_t batch) const;
  void accumulate_gradients(const Normalization& n, StepOutcome& outcome);
  void update(const Normalization& n, StepOutcome& outcome);
  bool keep_step(const StepOutcome& outcome);
  bool lower_loss_scale(const StepOutcome& outcome);
  void skip_step(const StepOutcome& outcome);
  std::string name_nonfinite(const StepOutcome& outcome);
  void count(const StepOutcome& outcome);

  Run& run_;
  const StepPlan& plan_;
  const Loader& loader_;
  RunModel& model_;
  RunState& state_;
  double flos_per_token_;
  Prefetcher prefetcher_;
};

}  // namespace qtrain
