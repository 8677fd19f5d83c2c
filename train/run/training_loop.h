#pragma once
#include <cstdint>
#include <optional>

#include "train/run/optimizer_steps.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_log.h"
#include "train/run/run_samples.h"
#include "train/run/run_schedule.h"

namespace qtrain {

/// Drives a run from the step in its state to the last one: optimizer steps and, in between, the rows, evaluations and
/// checkpoints that are due.
class TrainingLoop {
 public:
  /// The arguments must outlive this object.
  TrainingLoop(Run& run, RunLog& run_log, RunCheckpoints& checkpoints);

  /// Returns true if the run is complete, false if it stopped on request with a checkpoint to resume from. Stops after
  /// the update `stop_after` as if signaled, unless it is 0.
  bool run(std::int64_t stop_after);

 private:
  bool is_over() const;
  void handle_events();
  std::optional<double> evaluate();
  void save();

  Run& run_;
  RunLog& run_log_;
  RunCheckpoints& checkpoints_;
  RunSchedule events_;
  RunSamples samples_;
  OptimizerSteps steps_;
};

}  // namespace qtrain
