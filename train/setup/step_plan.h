#pragma once
#include <cstdint>

#include "config/config.h"
#include "data/dataset.h"

namespace qtrain {

/// How a run is divided into steps, counted like transformers: an epoch has `batches` micro-batches, and each optimizer
/// step takes `accumulation` of them (fewer at the end of an epoch).
struct StepPlan {
  std::int64_t batches = 0, accumulation = 1, updates_per_epoch = 0, max_steps = 0;

  /// Epoch of update `step` (counted from 0) and index of its first micro-batch in that epoch.
  std::int64_t epoch_of(std::int64_t step) const { return step / updates_per_epoch; }
  std::int64_t first_batch(std::int64_t step) const { return step % updates_per_epoch * accumulation; }
  std::int64_t end_batch(std::int64_t step) const;
  /// The epoch that transformers logs after `steps` updates.
  double epochs_after(std::int64_t steps) const;
};
/// `ranks`: number of ranks with batches of their own. Throws ErrorKind::input if there is nothing to train on.
StepPlan make_step_plan(const TrainingSection& t, std::int64_t batches_per_epoch, int ranks = 1);

/// The plan for the rows of a run, divided among the ranks of the config.
StepPlan make_step_plan(const Config& config, const Dataset& train);

}  // namespace qtrain
