#pragma once
#include <cstdint>

#include "config/config.h"
#include "data/dataset.h"

namespace qtrain {

/// How a run is divided, as transformers counts: an epoch has `batches` micro-batches, up to `accumulation` of them are
/// one optimizer step (the last one of an epoch may have fewer).
struct StepPlan {
  std::int64_t batches = 0, accumulation = 1, updates_per_epoch = 0, max_steps = 0;

  /// The epoch and the first micro-batch in it of update number `step` (from 0).
  std::int64_t epoch_of(std::int64_t step) const { return step / updates_per_epoch; }
  std::int64_t first_batch(std::int64_t step) const { return step % updates_per_epoch * accumulation; }
  std::int64_t end_batch(std::int64_t step) const;
  /// What transformers logs after `steps` updates.
  double epochs_after(std::int64_t steps) const;
};
/// A usage error when there is nothing to train on. `ranks`: that have batches of their own.
StepPlan make_step_plan(const TrainingSection& t, std::int64_t batches_per_epoch, int ranks = 1);

/// Of the rows of a run, shared by as many ranks as the config says.
StepPlan make_step_plan(const Config& config, const Dataset& train);

}  // namespace qtrain
