#include "train/evaluate.h"

#include "train/device_batch.h"
#include "train/stop.h"

namespace qtrain {

Evaluation evaluate(Ctx& ctx, Transformer& model, const Loader& loader) {
  Evaluation e;
  BatchFeed feed(ctx.device(), loader.max_batch_tokens());
  DeviceNumbers loss_sum(ctx.device(), 1);
  loss_sum.clear(ctx);
  for (std::int64_t i = 0; i < loader.batches_per_epoch() && !stop_requested(); ++i) {
    const Batch batch = loader.batch(0, i);
    e.tokens += batch.size();
    e.target_tokens += batch.target_count;
    e.rows += batch.rows;
    ++e.batches;
    if (batch.target_count == 0) continue;
    const DeviceBatch sent = feed.send(ctx, batch);
    model.forward(ctx, sent.tokens, {.pass = Pass::evaluate, .loss_sum = accumulate(loss_sum[0])});
  }
  e.loss_sum = loss_sum.read(ctx).front();
  return e;
}

}  // namespace qtrain
