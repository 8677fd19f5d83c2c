#include "train/run/checkpoint_policy.h"

namespace qtrain {

namespace fs = std::filesystem;

bool CheckpointPolicy::save_due(const RunState& state) const {
  if (t_.save_strategy == SaveStrategy::best) return best_found_after_ == state.step;
  const bool is_last = state.evaluations.ends_run() && t_.save_strategy != SaveStrategy::no;
  return is_last || events_.saves_after(state.step);
}

// Like transformers, tracks the best checkpoint only if the config asks for one.
bool CheckpointPolicy::chooses_best() const {
  return t_.metric_for_best_model || t_.save_strategy == SaveStrategy::best;
}

bool CheckpointPolicy::is_better(const RunState& state, double metric) const {
  const Better better = t_.greater_is_better.value_or(false) ? Better::higher : Better::lower;
  return qtrain::is_better(better, state.best_metric, metric);
}

void CheckpointPolicy::evaluated(RunState& state, double metric) {
  if (!chooses_best() || !is_better(state, metric)) return;
  state.best_metric = metric;
  state.best_step = best_found_after_ = state.step;
}

std::optional<Rotation> CheckpointPolicy::rotation(const RunState& state, const fs::path& newest) const {
  if (!t_.save_total_limit) return {};
  return Rotation{.limit = *t_.save_total_limit,
                  .keep = {newest.filename(), fs::path(state.best_checkpoint).filename()}};
}

std::optional<fs::path> CheckpointPolicy::final_checkpoint(const RunState& state) const {
  if (!t_.load_best_model_at_end || state.best_checkpoint.empty()) return {};
  return state.best_checkpoint;
}

}  // namespace qtrain
