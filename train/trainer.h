#pragma once
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/prefetch.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/output_lock.h"
#include "train/checkpoint/run_state.h"
#include "train/evaluate.h"
#include "train/plan/memory_plan.h"
#include "train/plan/step_plan.h"
#include "train/report/event_file.h"
#include "train/report/metrics.h"
#include "train/setup/model_setup.h"
#include "train/step.h"

namespace qtrain {

class DataPreparation;

/// One training run: data and model of a config, driven to its last step.
class Trainer {
 public:
  /// Loads data and model. `resume`: "auto" (the newest checkpoint in output_dir, else start), "never", or a folder.
  Trainer(const ResolvedConfig& config, const std::string& resume, Log& log);
  ~Trainer();

  /// Trains, evaluates and saves as the config says. Returns the exit code: 0, or 75 when a signal stopped it.
  int run();
  /// What the run came to, for --json: output_dir, step, and after the last step the contents of train_results.json.
  const Json& results() const { return results_; }
  /// The same in a line for people, after the last step.
  const std::string& summary() const { return summary_; }

 private:
  struct Data;
  struct StepResult {
    double loss = 0, grad_norm = 0, learning_rate = 0;
    std::int64_t tokens = 0;
  };

  void load_data();
  void set_template_date(DataPreparation& preparation);
  void load_model();
  void require_room() const;
  void set_schedule();
  void allocate();
  void identify();
  void warn_of_unsealed() const;
  void start_over();
  void leave_branch();
  bool is_here(const std::filesystem::path& checkpoint) const;
  void go_on();
  void say_random_weights() const;
  void disown_result(const std::optional<std::filesystem::path>& from);
  void say_no_effect(const std::string& key, const std::string& reason);
  Json circumstances() const;
  TrainingObjects objects();

  void start_prefetching();
  StepResult train_step();
  void run_window(StepResult& r, std::int64_t targets);
  bool settle(const StepResult& r);
  bool lower_scale(const StepResult& r);
  void refuse_step(const StepResult& r);
  void finish_step(const StepResult& r);
  void log_row(const StepResult& r);
  void run_events();
  bool evaluation_due() const;
  bool evaluate_now();
  bool chooses_best() const;
  void track_best(double metric);
  void save_now();
  int stop();
  void restore_best();
  void finish(double seconds);
  Json log_totals(double seconds);
  Json earlier_totals();
  void rotate(const std::filesystem::path& newest);
  void relocate_best(const std::filesystem::path& resumed);
  bool due(EvalStrategy strategy, double every) const;
  bool save_due() const;
  bool last_step() const { return state_.step >= plan_.max_steps; }
  void add_row(Json row, const Json& extra);

  const ResolvedConfig& config_;
  const TrainingSection& t_;
  Log& log_;
  std::filesystem::path output_;
  OutputLock lock_;
  Ctx ctx_;
  std::vector<std::filesystem::path> checkpoints_;  // to go on from, the newest first
  std::vector<std::filesystem::path> damaged_;      // names of those that the run did not go on from
  std::unique_ptr<Data> data_;
  ModelSetup setup_;
  std::vector<Param*> trained_;
  std::unique_ptr<Evaluator> evaluator_;
  MemoryPlan memory_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainStep> step_;
  Schedule schedule_;
  StepPlan plan_;
  RunState state_;
  Json provenance_, identity_;   ///< of the files that the run began with; what a resume is compared with
  Json inert_ = Json::object();  ///< keys that turned out to have no effect on this model or device
  std::unique_ptr<Prefetcher> prefetcher_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  Stopwatch log_watch_, run_watch_, step_watch_;  ///< the last since the first step of this start begins
  double flos_per_token_ = 0;
  std::int64_t tokens_since_log_ = 0;
  std::int64_t first_step_ = 0, tokens_at_start_ = 0;  ///< of this start of the program
  double data_wait_ = 0;
  std::int64_t best_saved_step_ = -1, saved_step_ = -1;
  bool scales_loss_ = false;  ///< float16
  bool goes_on_by_itself_;    ///< the same command resumes
  Json results_ = Json::object();
  std::string summary_;
};

}  // namespace qtrain
