#include "train/evaluate.h"

#include "core/stop.h"

namespace qtrain {

Evaluator::Evaluator(Device device, const Loader& loader)
    : loader_(loader), feed_(device, loader.max_batch_tokens()), loss_sum_(device, 1) {}

Evaluation Evaluator::run(Ctx& ctx, Transformer& model, Log& log) {
  Evaluation e;
  ProgressBar bar(log, {.unit = "evaluating", .total = loader_.batches_per_epoch()});
  loss_sum_.clear(ctx);
  for (std::int64_t i = 0; i < loader_.batches_per_epoch() && !stop_requested(); ++i) {
    const Batch batch = loader_.batch(0, i);
    e.tokens += batch.size();
    e.target_tokens += batch.target_count;
    e.rows += batch.rows;
    ++e.batches;
    bar.set(i);
    if (batch.target_count == 0) continue;
    const DeviceBatch sent = feed_.send(ctx, batch);
    model.forward(ctx, sent.tokens, {.pass = Pass::evaluate, .loss_sum = accumulate(loss_sum_[0])});
  }
  e.loss_sum = loss_sum_.read(ctx).front();
  return e;
}

}  // namespace qtrain
