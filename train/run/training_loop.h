#pragma once
#include "train/run/optimizer_steps.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_context.h"
#include "train/run/run_log.h"
#include "train/run/run_model.h"
#include "train/run/run_samples.h"
#include "train/run/run_schedule.h"

namespace qtrain {

/// Drives a run from the step of its state to its last one: optimizer steps, and between them the rows, evaluations and
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
    std::int64_t stop_after = 0;  ///< as if told to stop after this update; 0: not
  };
  /// What these refer to must outlive this.
  TrainingLoop(const RunContext& run, const Parts& parts);

  /// Returns whether the run is done. False: a stop was asked for, and there is a checkpoint to go on from.
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
