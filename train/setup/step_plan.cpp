#include "train/setup/step_plan.h"

#include <algorithm>
#include <cmath>

#include "core/plural.h"
#include "data/loader.h"

namespace qtrain {

std::int64_t StepPlan::end_batch(std::int64_t step) const {
  return std::min(first_batch(step) + accumulation, batches);
}

double StepPlan::epochs_after(std::int64_t steps) const {
  if (steps == 0) return 0;
  const std::int64_t last = steps - 1;
  return static_cast<double>(epoch_of(last)) + static_cast<double>(end_batch(last)) / static_cast<double>(batches);
}

namespace {

[[noreturn]] void fail_without_batches(const TrainingSection& t, int ranks) {
  if (!t.dataloader_drop_last)
    fail(ErrorKind::input,
         {.cause = "the training data has no rows", .remedy = "check dataset_name, max_length and the masks"});
  fail(ErrorKind::input,
       {.cause = fmt::format(
            "the training data does not fill a batch of {}, and dataloader_drop_last drops smaller ones",
            ranks == 1 ? counted(t.per_device_train_batch_size, "row")
                       : fmt::format("{} on each of {} ranks", counted(t.per_device_train_batch_size, "row"), ranks)),
        .remedy = fmt::format("set dataloader_drop_last to false, or lower per_device_train_batch_size{}",
                              ranks == 1 ? "" : ", or start fewer ranks (nproc)")});
}

/// The updates of all epochs; fails above the limit of max_steps.
std::int64_t updates_of(double epochs, std::int64_t updates_per_epoch) {
  constexpr double kMost = 1e15;
  const double updates = std::ceil(epochs * static_cast<double>(updates_per_epoch));
  if (updates > kMost)
    fail(ErrorKind::usage,
         {.cause = fmt::format("num_train_epochs is {:g}, which makes more than {:g} updates", epochs, kMost),
          .remedy = "lower num_train_epochs, or set max_steps"});
  return static_cast<std::int64_t>(updates);
}

}  // namespace

StepPlan make_step_plan(const TrainingSection& t, std::int64_t batches_per_epoch, int ranks) {
  if (batches_per_epoch < 1) fail_without_batches(t, ranks);
  StepPlan p{.batches = batches_per_epoch, .accumulation = t.gradient_accumulation_steps};
  p.updates_per_epoch = (p.batches + p.accumulation - 1) / p.accumulation;
  p.max_steps = t.max_steps > 0 ? t.max_steps : updates_of(t.num_train_epochs, p.updates_per_epoch);
  return p;
}

StepPlan make_step_plan(const Config& config, const Dataset& train) {
  const TrainingSection& t = config.training;
  const Loader loader(train, {.batch_size = t.per_device_train_batch_size,
                              .world = config.run.data_ranks(),
                              .drop_last = t.dataloader_drop_last});
  return make_step_plan(t, loader.batches_per_epoch(), config.run.data_ranks());
}

}  // namespace qtrain
