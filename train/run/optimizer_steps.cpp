#include "train/run/optimizer_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/timeline.h"
#include "report/metrics.h"

namespace qtrain {
namespace {

Prefetcher::Options prefetching(const TrainingSection& t) {
  const auto threads = static_cast<int>(std::max<std::int64_t>(t.dataloader_num_workers, 1));
  return {.threads = threads, .ahead = threads * static_cast<int>(t.dataloader_prefetch_factor.value_or(2))};
}

// Iterates over the micro-batches of all steps from `step` on.
Prefetcher::Places batches_from(std::int64_t step, const StepPlan& plan) {
  return [plan, step, batch = plan.first_batch(step)]() mutable {
    if (batch >= plan.end_batch(step)) batch = plan.first_batch(++step);
    return step < plan.max_steps ? std::optional(BatchPlace{.epoch = plan.epoch_of(step), .index = batch++})
                                 : std::nullopt;
  };
}

}  // namespace

OptimizerSteps::OptimizerSteps(Run& run)
    : run_(run),
      plan_(run.plan()),
      loader_(*run.data->train_loader),
      model_(run.model),
      state_(run.state),
      flos_per_token_(flos_per_token(*run.model.setup.model)),
      prefetcher_(loader_, prefetching(run.training()), batches_from(state_.step, plan_)) {}

StepOutcome OptimizerSteps::next() {
  const Stopwatch watch;
  StepOutcome outcome;
  // Like transformers, the schedule does not count updates that overflowed.
  outcome.learning_rate = learning_rate(run_.schedule, {.peak = run_.training().learning_rate,
                                                        .step = state_.step - state_.overflows,
                                                        .reductions = state_.evaluations.plateau().reductions});
  const Contents all = contents();
  outcome.tokens = all.tokens;
  if (model_.setup.model->config().is_balanced()) outcome.router_batches = all.batches;
  // Like transformers, a step without targets has zero gradients and still updates.
  if (all.targets == 0)
    run_.log.warn("step {}: all labels are masked, so there is nothing to learn from its rows", state_.step + 1);
  const Normalization n{.per_target = 1.0 / static_cast<double>(std::max<std::int64_t>(all.targets, 1)),
                        .loss_scale = run_.scales_loss() ? state_.loss_scale.value : 1,
                        .per_batch = run_.config.value.model.router_aux_loss_mode == RouterLossMode::trl
                                         ? 1.0 / static_cast<double>(all.batches)
                                         : 1.0};
  accumulate_gradients(n, outcome);
  update(n, outcome);
  if (keep_step(outcome)) model_.optimizer->set_updates(model_.optimizer->updates() + 1);
  count(outcome);
  outcome.seconds = watch.seconds();
  return outcome;
}

OptimizerSteps::Contents OptimizerSteps::contents() const {
  Contents all;
  const std::int64_t epoch = plan_.epoch_of(state_.step);
  for (std::int64_t i = plan_.first_batch(state_.step); i < plan_.end_batch(state_.step); ++i) {
    all.targets += loader_.global_targets(epoch, i);
    all.tokens += loader_.global_tokens(epoch, i);
    all.batches += loader_.global_batches(i);
  }
  return all;
}

Batch OptimizerSteps::take(std::int64_t batch) {
  const timeline::Span span("wait for rows");
  return prefetcher_.take({.epoch = plan_.epoch_of(state_.step), .index = batch});
}

// Includes the time spent waiting for the other ranks.
double OptimizerSteps::seconds_of_keys() const {
  return model_.keys ? model_.keys->seconds() : 0;
}

std::optional<RowNoise> OptimizerSteps::noise_of_batch(std::int64_t batch) const {
  const TrainingSection& t = run_.training();
  const double alpha = t.neftune_noise_alpha.value_or(0);
  if (alpha <= 0) return {};
  return RowNoise{.alpha = alpha,
                  .width = model_.setup.model->config().hidden_size,
                  .seed = t.seed,
                  .epoch = plan_.epoch_of(state_.step),
                  .first_row = loader_.first_row(batch)};
}

void OptimizerSteps::accumulate_gradients(const Normalization& n, StepOutcome& outcome) {
  const std::int64_t step = state_.step, seed = run_.training().seed;
  const bool balanced = model_.setup.model->config().is_balanced();
  const std::int64_t first = plan_.first_batch(step), end = plan_.end_batch(step);
  model_.step->begin(end - first);
  for (std::int64_t i = first; i < end; ++i) {
    const Stopwatch watch;
    const double of_keys = seconds_of_keys();
    const Batch batch = take(i);
    outcome.data_wait += watch.seconds();
    if (batch.target_count > 0 || (balanced && batch.size() > 0))
      model_.step->add(batch, {.scale = n.per_target * n.loss_scale,
                               .router_scale = n.per_batch * n.loss_scale,
                               .dropout_seed = dropout_seed(seed, step, loader_.global_index(i)),
                               .noise = noise_of_batch(i)});
    else
      model_.step->skip();
    outcome.computing += watch.seconds() - (seconds_of_keys() - of_keys);
    model_.step->end_micro_batch();
  }
  run_.sharing.barrier(run_.ctx);  // host barrier: the GPUs' calls are agreed on through it
}

void OptimizerSteps::update(const Normalization& n, StepOutcome& outcome) {
  const TrainStep::Sums sums = model_.step->finish({.learning_rate = outcome.learning_rate,
                                                    .max_grad_norm = run_.training().max_grad_norm,
                                                    .loss_scale = n.loss_scale});
  outcome.loss = sums.loss * n.per_target;
  if (outcome.router_batches > 0) {
    outcome.router_loss = sums.router;
    outcome.loss += model_.setup.model->config().experts->balance_coefficient * n.per_batch * sums.router;
  }
  outcome.grad_norm = std::sqrt(sums.squares) / n.loss_scale;
}

// Returns whether the update was made. It is skipped if non-finite; too many of those in a row end the run.
bool OptimizerSteps::keep_step(const StepOutcome& outcome) {
  const bool finite = std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
  if (run_.scales_loss() && lower_loss_scale(outcome)) return false;
  if (!finite) skip_step(outcome);
  if (finite) state_.nonfinite_in_row = 0;
  return finite;
}

// With float16, gradients overflow now and then while the loss scale is high.
bool OptimizerSteps::lower_loss_scale(const StepOutcome& outcome) {
  const bool finite = std::isfinite(outcome.grad_norm), high = state_.loss_scale.value > 1;
  state_.loss_scale.count(finite);
  if (finite || !high || !std::isfinite(outcome.loss)) return false;
  ++state_.overflows;
  run_.log.info("step {}: gradients overflowed in float16; skipped the update and lowered the loss scale to {}",
                state_.step + 1, state_.loss_scale.value);
  return true;
}

void OptimizerSteps::skip_step(const StepOutcome& outcome) {
  const std::string what = name_nonfinite(outcome);
  ++state_.nonfinite_in_row;
  run_.log.warn("step {}: {} is not finite; skipped the update", state_.step + 1, what);
  if (state_.nonfinite_in_row >= run_.config.value.run.max_nonfinite_steps)
    fail(ErrorKind::non_finite,
         {.cause = fmt::format("{} is not finite in {} steps in a row", what, state_.nonfinite_in_row),
          .place = fmt::format("step {}", state_.step + 1),
          .remedy = "lower learning_rate or check the data; earlier checkpoints are intact"});
}

std::string OptimizerSteps::name_nonfinite(const StepOutcome& outcome) {
  if (std::isfinite(outcome.loss))
    for (Param* p : model_.setup.model->trained())
      if (!model_.step->has_finite_gradient(*p)) return "the gradient of " + p->spec.name;
  return "the loss";
}

void OptimizerSteps::count(const StepOutcome& outcome) {
  ++state_.step;
  state_.tokens += outcome.tokens;
  state_.flos += flos_per_token_ * static_cast<double>(outcome.tokens);
  state_.add_loss(outcome.loss);
  state_.add_router_loss(outcome.router_loss, outcome.router_batches);
}

}  // namespace qtrain
