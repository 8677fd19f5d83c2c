#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/event_file.h"
#include "report/metrics.h"
#include "report/outcome_advice.h"
#include "report/run_messages.h"
#include "report/tracker.h"
#include "train/run/optimizer_steps.h"
#include "train/run/run_schedule.h"
#include "train/step/evaluate.h"

namespace qtrain {

/// Everything that a run reports as it goes: progress lines on the terminal, rows in metrics.jsonl, in TensorBoard
/// event files, and in the log_history of its state.
class RunLog {
 public:
  /// Opens the files in output_dir at the step of the run's state, if this rank leads, and drops rows of later steps
  /// from them. `run` must outlive this object. Throws ErrorKind::disk.
  explicit RunLog(Run& run);

  /// Logs a description of the run and starts its clocks.
  void begin();
  /// Starts the clock for the time remaining; what came before is not part of a step.
  void begin_steps() { step_watch_ = {}; }
  /// Call after the step is counted in the state.
  void add_step(const StepOutcome& outcome);
  void add_evaluation(const Evaluation& e, double seconds);
  /// Adds to the time spent saving.
  void add_saving(double seconds) { saving_ += seconds; }
  /// Adds to the time spent on sample prompts.
  void add_sampling(double seconds) { sampling_ += seconds; }
  /// Records how the run ended before its last step; `level` as in RunMessages.
  void add_end(std::string_view level, const std::string& text);
  /// Tells tracking tools that the run has ended, with its exit code.
  void end_tracking(int exit_code);
  /// Logs a row of the last step: `row` goes into log_history as well, `extra` only into the files.
  void add_row(Json row, const Json& extra);

  /// Progress made by this process since `begin`.
  Pace pace() const { return pace_after(run_watch_.seconds()); }
  const MetricsFile& metrics() const { return metrics_; }
  /// Losses of the steps that this process did.
  const LossCourse& losses() const { return losses_; }
  /// Flushes all rows to disk.
  void sync() {
    metrics_.sync();
    messages_.sync();
  }

 private:
  void add_training_row(const StepOutcome& outcome);
  void publish(const Progress& progress, const StepOutcome& outcome);
  double memory_in_use() const;
  Json work_of_ranks() const;
  Pace pace_after(double seconds) const;

  Run& run_;
  const StepPlan& plan_;
  RunState& state_;
  RunSchedule events_;
  MetricsFile metrics_;
  RunMessages messages_;
  std::vector<std::unique_ptr<Tracker>> trackers_;
  std::optional<EventFile> event_file_;
  RunGauges gauges_;
  LossCourse losses_;
  std::int64_t first_step_, first_tokens_;  ///< where this process started
  Stopwatch run_watch_, step_watch_, row_watch_;
  std::int64_t tokens_since_row_ = 0;
  double data_wait_ = 0, computing_ = 0, stepping_ = 0, saving_ = 0, sampling_ = 0;  ///< seconds since the last row
  double starting_ = 0;  ///< startup seconds, until they are logged
};

}  // namespace qtrain
