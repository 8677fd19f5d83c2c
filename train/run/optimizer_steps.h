#pragma once
#include <cstdint>

#include "data/prefetch.h"
#include "optim/schedule.h"
#include "train/checkpoint/run_state.h"
#include "train/run/run_context.h"
#include "train/run/run_data.h"
#include "train/run/run_model.h"

namespace qtrain {

/// What one optimizer step came to.
struct StepOutcome {
  double loss = 0, grad_norm = 0, learning_rate = 0;
  double router_loss = 0;           ///< of all micro-batches, without its coefficient
  std::int64_t router_batches = 0;  ///< micro-batches that have it
  std::int64_t tokens = 0;
  double data_wait = 0;  ///< seconds that the device had no batch
  double seconds = 0;    ///< of the whole step
  double computing = 0;  ///< seconds that this rank computed its micro-batches, on a processor
};

/// The optimizer steps of a run, one after the other: gradients accumulated over the micro-batches of a step, then one
/// update, which is skipped where loss or gradients are not finite. Threads prepare batches ahead while this lives.
class OptimizerSteps {
 public:
  struct Parts {
    const RunData& data;
    RunModel& model;
    RunState& state;
    Schedule schedule;
  };
  /// What these refer to must outlive this. The first step is the one behind those that `state` has.
  OptimizerSteps(const RunContext& run, const Parts& parts);

  /// Takes the next step and counts it in the state. ErrorKind::non_finite after run.max_nonfinite_steps in a row that
  /// were not finite, before a checkpoint can hold them.
  StepOutcome next();

 private:
  struct Normalization {
    double per_target;  ///< 1 / targets of the step
    double loss_scale;  ///< of float16
    double per_batch;   ///< of the loss of routers in a micro-batch
  };

  /// What the micro-batches of the next step have over all ranks.
  struct Contents {
    std::int64_t targets = 0, tokens = 0, batches = 0;
  };
  Contents contents() const;
  Batch take(std::int64_t batch);
  double seconds_of_keys() const;
  void accumulate_gradients(const Normalization& n, StepOutcome& outcome);
  void update(const Normalization& n, StepOutcome& outcome);
  bool keep_step(const StepOutcome& outcome);
  bool lower_loss_scale(const StepOutcome& outcome);
  void skip_step(const StepOutcome& outcome);
  std::string name_nonfinite(const StepOutcome& outcome);
  void count(const StepOutcome& outcome);

  RunContext run_;
  const StepPlan& plan_;
  const Loader& loader_;
  RunModel& model_;
  RunState& state_;
  Schedule schedule_;
  double flos_per_token_;
  Prefetcher prefetcher_;
};

}  // namespace qtrain
