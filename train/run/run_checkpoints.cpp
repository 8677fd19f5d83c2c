#include "train/run/run_checkpoints.h"

#include <fmt/format.h>

#include <utility>

#include "train/checkpoint/manifest.h"

namespace qtrain {

namespace fs = std::filesystem;

RunCheckpoints::RunCheckpoints(const TrainingObjects& run, fs::path output, Log& log)
    : run_(run), output_(std::move(output)), log_(log), policy_(run.training, run.plan) {}

std::optional<fs::path> RunCheckpoints::restore(const ResumeFrom& from) {
  auto resumed = load_first_whole(run_, from, log_);
  if (!resumed) return {};
  if (!run_.state.best_checkpoint.empty()) run_.state.best_checkpoint = relocated_best(resumed->from).string();
  saved_step_ = run_.state.step;
  damaged_ = std::move(resumed->damaged);
  return resumed->from;
}

// The best checkpoint where it lies now: beside the one that the run goes on from.
fs::path RunCheckpoints::relocated_best(const fs::path& resumed) const {
  const fs::path name = fs::path(run_.state.best_checkpoint).filename();
  const fs::path here = output_ / name, beside = full_path(resumed).parent_path() / name;
  return fs::exists(here) || !fs::exists(beside) ? here : beside;
}

void RunCheckpoints::save() {
  RunState& state = run_.state;
  if (CheckpointPolicy::is_best(state))
    state.best_checkpoint = (output_ / fmt::format("checkpoint-{}", state.step)).string();
  const fs::path saved = save_checkpoint(run_, output_);
  saved_step_ = state.step;
  std::erase(damaged_, saved.filename());
  log_.info("saved {}", saved.string());
  rotate(saved);
}

void RunCheckpoints::rotate(const fs::path& newest) const {
  std::optional<Rotation> rotation = policy_.rotation(run_.state, newest);
  if (!rotation) return;
  rotation->damaged = damaged_;
  rotate_checkpoints(output_, *rotation);
}

void RunCheckpoints::load_best() {
  const std::optional<fs::path> best = policy_.final_checkpoint(run_.state);
  if (!best) return;
  if (!fs::exists(*best))
    return log_.warn("{} is gone: the final model is that of the last step, not the best one", best->string());
  try {
    check_manifest(*best, ManifestCheck::hashes);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return log_.warn("the final model is that of the last step, not the best one: {}", e.what());
  }
  const bool adapter_only = run_.setup.model->options().lora.has_value();
  load_weights(run_.ctx, run_.setup, {.weights = adapter_only ? std::nullopt : best, .adapter = best}, log_);
  log_.info("the final model is the best one, of step {}", run_.state.best_step);
}

}  // namespace qtrain
