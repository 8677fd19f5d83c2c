#include <fmt/format.h>

#include <cmath>

#include "core/plural.h"
#include "train/checkpoint/manifest.h"
#include "train/setup/model_setup.h"
#include "train/stop.h"
#include "train/trainer.h"

/// What happens between the steps of a run: evaluations, saves, and the best of them.
namespace qtrain {

namespace fs = std::filesystem;

bool Trainer::due(EvalStrategy strategy, double every) const {
  if (strategy == EvalStrategy::no) return false;
  if (strategy == EvalStrategy::epoch) return state_.step % plan_.updates_per_epoch == 0 || last_step();
  return state_.step % interval_steps(every, plan_.max_steps) == 0;
}

bool Trainer::save_due() const {
  switch (t_.save_strategy) {
    case SaveStrategy::no: return false;
    case SaveStrategy::best: return best_saved_step_ == state_.step;
    case SaveStrategy::epoch: return due(EvalStrategy::epoch, 1);
    case SaveStrategy::steps: return due(EvalStrategy::steps, t_.save_steps) || last_step();
  }
  return false;
}

bool Trainer::evaluation_due() const {
  const bool asked = due(t_.eval_strategy, t_.eval_steps.value_or(t_.logging_steps)) ||
                     (t_.eval_strategy == EvalStrategy::steps && last_step());
  const double done =
      t_.eval_strategy == EvalStrategy::epoch ? plan_.epochs_after(state_.step) : static_cast<double>(state_.step);
  return asked && done >= t_.eval_delay;
}

// What is due after a step. A stop leaves it to the run that goes on.
void Trainer::run_events() {
  state_.events_pending = true;
  if (evaluation_due() && !evaluate_now()) return;
  if (save_due() && stop_requested()) return;
  state_.events_pending = false;
  if (save_due()) save_now();
}

// False when a stop came first.
bool Trainer::evaluate_now() {
  if (!evaluator_) return true;
  Stopwatch watch;
  const Evaluation e = evaluator_->run(ctx_, *setup_.model, log_);
  if (stop_requested()) return false;
  const double seconds = watch.seconds();
  log_.info("step {}: eval_loss {} over {} in {:.1f} s", state_.step, finite_or_words(e.loss(), 4),
            counted(e.target_tokens, "target"), seconds);
  add_row({{"epoch", plan_.epochs_after(state_.step)},
           {"eval_loss", finite_or_null(e.loss())},
           {"eval_runtime", seconds},
           {"eval_samples_per_second", static_cast<double>(e.rows) / seconds},
           {"eval_steps_per_second", static_cast<double>(e.batches) / seconds}},
          {});
  track_best(e.loss());
  return true;
}

// As transformers, which knows a best checkpoint only where the config asks for one.
bool Trainer::chooses_best() const {
  return t_.metric_for_best_model || t_.save_strategy == SaveStrategy::best;
}

void Trainer::track_best(double metric) {
  if (!chooses_best() || !std::isfinite(metric)) return;
  const bool greater = t_.greater_is_better.value_or(false);
  if (state_.best_metric && (greater ? metric <= *state_.best_metric : metric >= *state_.best_metric)) return;
  state_.best_metric = metric;
  state_.best_step = best_saved_step_ = state_.step;
}

void Trainer::save_now() {
  if (state_.best_metric && state_.best_step == state_.step)
    state_.best_checkpoint = (output_ / fmt::format("checkpoint-{}", state_.step)).string();
  metrics_->sync();
  const fs::path saved = save_checkpoint(objects(), output_);
  saved_step_ = state_.step;
  std::erase(damaged_, saved.filename());
  log_.info("saved {}", saved.string());
  rotate(saved);
}

void Trainer::rotate(const fs::path& newest) {
  if (!t_.save_total_limit) return;
  const fs::path best = state_.best_checkpoint;
  rotate_checkpoints(
      output_, {.limit = *t_.save_total_limit, .keep = {newest.filename(), best.filename()}, .damaged = damaged_});
}

// The best checkpoint where it lies now: beside the one that the run goes on from.
void Trainer::relocate_best(const fs::path& resumed) {
  if (state_.best_checkpoint.empty()) return;
  const fs::path name = fs::path(state_.best_checkpoint).filename();
  const fs::path here = output_ / name, beside = full_path(resumed).parent_path() / name;
  if (fs::exists(here) || !fs::exists(beside))
    state_.best_checkpoint = here.string();
  else
    state_.best_checkpoint = beside.string();
}

void Trainer::restore_best() {
  if (!t_.load_best_model_at_end || state_.best_checkpoint.empty()) return;
  const fs::path best = state_.best_checkpoint;
  if (!fs::exists(best))
    return log_.warn("{} is gone: the final model is that of the last step, not the best one", best.string());
  try {
    check_manifest(best, ManifestCheck::hashes);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return log_.warn("the final model is that of the last step, not the best one: {}", e.what());
  }
  load_weights(ctx_, setup_,
               {.weights = setup_.model->options().lora ? std::nullopt : std::optional(best), .adapter = best}, log_);
  log_.info("the final model is the best one, of step {}", state_.best_step);
}

}  // namespace qtrain
