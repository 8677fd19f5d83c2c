#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/file.h"
#include "core/plural.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"
#include "train/report/advice.h"
#include "train/setup/model_setup.h"
#include "train/trainer.h"

/// Where a run begins: at its first step, or at a checkpoint of the same run.
namespace qtrain {

namespace fs = std::filesystem;

void Trainer::warn_of_unsealed() const {
  std::vector<std::string> names;
  for (const fs::path& folder : unsealed_checkpoints(output_)) names.push_back(folder.filename().string());
  if (names.empty()) return;
  log_.warn("{}: no run goes on from {} without a manifest.json, which this program writes last ({})", output_.string(),
            names.size() == 1 ? "a folder" : "folders", fmt::join(names, ", "));
}

void Trainer::start_over() {
  if (const auto old = set_aside_checkpoints(output_); old > 0)
    log_.warn("starting over: {} of an earlier run {} now called *.superseded", counted(old, "checkpoint"),
              old == 1 ? "is" : "are");
}

// The steps behind the checkpoint that was asked for are done anew: no run goes on from those of before.
void Trainer::leave_branch() {
  if (const auto later = set_aside_checkpoints(output_, state_.step); later > 0)
    log_.warn("going on from step {}: {} of later steps {} now called *.superseded", state_.step,
              counted(later, "checkpoint"), later == 1 ? "is" : "are");
}

bool Trainer::is_here(const fs::path& checkpoint) const {
  std::error_code ignored;
  return fs::equivalent(full_path(checkpoint).parent_path(), output_, ignored);
}

void Trainer::go_on() {
  // Frozen base weights are in no checkpoint of an adapter run.
  load_weights(ctx_, setup_, {.seed = static_cast<std::uint64_t>(t_.seed)}, log_);
  TrainingObjects run = objects();
  const auto resumed = load_first_whole(run, {checkpoints_, !goes_on_by_itself_}, log_);
  if (resumed) {
    relocate_best(resumed->from);
    saved_step_ = state_.step;
    damaged_ = resumed->damaged;
    if (goes_on_by_itself_)
      rotate(resumed->from);  // what a kill between a save and its rotation has left
    else if (is_here(resumed->from))
      leave_branch();
    log_.info("resumed from {} at step {} of {}", resumed->from.string(), state_.step, plan_.max_steps);
    if (state_.step > plan_.max_steps)
      log_.warn("the config ends at step {}, and {} steps are done: --resume with an earlier checkpoint, or never",
                plan_.max_steps, state_.step);
  } else {
    say_random_weights();
  }
  disown_result(resumed ? std::optional(resumed->from) : std::nullopt);
  metrics_ = std::make_unique<MetricsFile>(output_ / "metrics.jsonl", state_.step);
  // A run that goes on keeps what was logged at the step of its checkpoint.
  events_ = std::make_unique<EventFile>(output_ / "runs", state_.step == 0 ? 0 : state_.step + 1);
  const fs::path file = output_ / "resolved_config.json";
  if (resumed && is_here(resumed->from) && last_step() && fs::exists(file)) return;  // it says how the steps were done
  Json resolved = resolved_json(config_);
  resolved["inert"].update(inert_);
  resolved["run"] = circumstances();
  write_file(file, dump_json(resolved, 2) + "\n");
}

// Weights of a run that goes on are those of its checkpoint.
void Trainer::say_random_weights() const {
  if (!setup_.random_init || setup_.model->options().base == Update::frozen) return;
  if (const auto advice = advice_on_weights(setup_)) log_.warn("{}", *advice);
  log_.info("the model starts from random weights, seed {}", t_.seed);
}

// A final model that lies in the output directory is what this run has come to only where the run goes on behind it.
void Trainer::disown_result(const std::optional<fs::path>& from) {
  const auto step = manifest_step(output_);
  if (from && is_here(*from) && step && *step <= state_.step) return;
  if (unseal(output_)) log_.info("{} holds the model of an earlier run until this one is done", output_.string());
}

}  // namespace qtrain
