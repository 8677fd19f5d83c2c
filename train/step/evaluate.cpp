#include "train/step/evaluate.h"

#include <algorithm>

#include "core/os/stop.h"

namespace qtrain {

Evaluator::Evaluator(Device device, const Loader& loader, Collective& ranks, const EvaluationOptions& options)
    : loader_(loader),
      ranks_(ranks),
      share_(options.share),
      loss_(options.loss),
      feed_(device, {.max_tokens = loader.max_batch_tokens(), .share = options.share}),
      sums_(device, 2) {}

Evaluation Evaluator::run(Ctx& ctx, Runner& runner, Log& log) {
  const Transformer& model = runner.model();
  Evaluation e;
  const bool balanced = model.config().is_balanced();
  if (balanced) e.router_coefficient = model.config().experts->balance_coefficient;
  ProgressBar bar(log, {.unit = "evaluating", .total = loader_.batches_per_epoch()});
  sums_.clear(ctx);
  for (std::int64_t i = 0; i < loader_.batches_per_epoch() && !stops(ctx, model); ++i) {
    const Batch batch = loader_.batch(0, i);
    e.tokens += batch.size();
    e.target_tokens += batch.target_count;
    e.rows += batch.rows;
    bar.set(i);
    if (batch.size() > 0) ++e.batches;
    if (batch.size() == 0 || (batch.target_count == 0 && !balanced)) {
      runner.follow(ctx, Pass::evaluate);
      continue;
    }
    const DeviceBatch sent = feed_.send(ctx, batch);
    runner.forward(ctx, sent.tokens,
                   {.pass = Pass::evaluate,
                    .loss = loss_,
                    .loss_sum = accumulate(sums_[0]),
                    .router_loss = {.sum = balanced ? accumulate(sums_[1]) : discard()}});
  }
  const std::vector<double> sums = sums_.read(ctx);
  e.loss_sum = sums[0];
  e.router_sum = sums[1];
  add_over_ranks(ctx, e);
  return e;
}

// Ranks that share weights or tokens must process the same batches.
bool Evaluator::stops(Ctx& ctx, const Transformer& model) const {
  const bool together = model.options().sharding.divides_weights() || share_.is_shared();
  return together ? any_rank(ctx, ranks_, stop_requested()) : stop_requested();
}

void Evaluator::add_over_ranks(Ctx& ctx, Evaluation& e) {
  std::vector<double> sums{e.loss_sum, e.router_sum};
  std::vector<std::int64_t> counts{e.tokens, e.target_tokens, e.rows, e.batches};
  if (share_.rank > 0) std::ranges::fill(counts, 0);  // so that ranks sharing a batch count it once
  ranks_.all_reduce(ctx, view_of(std::span(sums), {2}), Reduction::sum);
  ranks_.all_reduce(ctx, view_of(std::span(counts), {4}), Reduction::sum);
  e.loss_sum = sums[0];
  e.router_sum = sums[1];
  e.tokens = counts[0];
  e.target_tokens = counts[1];
  e.rows = counts[2];
  e.batches = counts[3];
}

}  // namespace qtrain
