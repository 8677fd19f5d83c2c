#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/event_file.h"
#include "report/metrics.h"
#include "report/outcome_advice.h"
#include "report/run_messages.h"
#include "report/tracker.h"
#include "train/checkpoint/run_state.h"
#include "train/run/optimizer_steps.h"
#include "train/run/run_context.h"
#include "train/run/run_schedule.h"
#include "train/step/evaluate.h"

namespace qtrain {

/// What a run says and writes of itself as it goes: lines and time left on the terminal, rows in metrics.jsonl, in the
/// event files of TensorBoard, and in the log_history of its state.
class RunLog {
 public:
  struct Parts {
    const StepPlan& plan;
    RunState& state;
  };
  /// Opens the files in `output` at the step of the state, if this rank leads: what they say of later steps is taken
  /// back. What the arguments refer to must outlive this. Errors: ErrorKind::disk.
  RunLog(const RunContext& run, const Parts& parts, const std::filesystem::path& output);

  /// Says what the run is, and starts its clocks.
  void begin();
  /// Starts the clock of the time left: what came before is not part of a step.
  void begin_steps() { step_watch_ = {}; }
  /// The step is counted in the state.
  void add_step(const StepOutcome& outcome);
  void add_evaluation(const Evaluation& e, double seconds);
  /// What a save took.
  void add_saving(double seconds) { saving_ += seconds; }
  /// What answers to prompts took.
  void add_sampling(double seconds) { sampling_ += seconds; }
  /// How the run ended before its last step; `level` as in RunMessages.
  void add_end(std::string_view level, const std::string& text);
  /// The end of the run for tracking tools: its exit code.
  void end_tracking(int exit_code);
  /// A row of the last step: `row` goes into log_history too, `extra` only into the files.
  void add_row(Json row, const Json& extra);

  /// What this start of the program has done since `begin`.
  Pace pace() const { return pace_after(run_watch_.seconds()); }
  const MetricsFile& metrics() const { return metrics_; }
  /// Of the steps of this start.
  const LossCourse& losses() const { return losses_; }
  /// All rows are on the disk then.
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

  RunContext run_;
  const StepPlan& plan_;
  RunState& state_;
  RunSchedule events_;
  MetricsFile metrics_;
  RunMessages messages_;
  std::vector<std::unique_ptr<Tracker>> trackers_;
  std::optional<EventFile> event_file_;
  RunGauges gauges_;
  LossCourse losses_;
  std::int64_t first_step_, first_tokens_;  ///< of this start of the program
  Stopwatch run_watch_, step_watch_, row_watch_;
  std::int64_t tokens_since_row_ = 0;
  double data_wait_ = 0, computing_ = 0, stepping_ = 0, saving_ = 0, sampling_ = 0;  ///< seconds since the last row
  double starting_ = 0;  ///< before the first step, until it is told
};

}  // namespace qtrain
