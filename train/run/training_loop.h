#pragma once
#include "train/run/optimizer_steps.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_context.h"
#include "train/run/run_log.h"
#include "train/run/run_model.h"
#include "train/run/run_samples.h"
#include "train/run/run_schedule.h"

namespace qtrain {

/// Drives a run from the step in its state to the last one: optimizer steps and, in between, the rows, evaluations and
/// checkpoints that are due.
class TrainingLoop {
 public:
  struct Parts {
    const StepPlan& plan;
    RunModel& model;
    RunState& state;
    OptimizerSteps& steps;
    RunLog& run_log;
    RunSamples& samples;
    RunCheckpoints& checkpoints;
    std::int64_t stop_after = 0;  ///< stop after this update as if signaled; 0: do not
  };
  /// What these refer to must outlive this object.
  TrainingLoop(const RunContext& run, const Parts& parts);

  /// Returns true if the run is complete, false if it stopped on request with a checkpoint to resume from.
  bool run();

 private:
  void handle_events();
  bool evaluate();
  void save();

  RunContext run_;
  Parts parts_;
  RunSchedule events_;
};

}  // namespace qtrain
