#include "train/evaluate.h"

#include "train/device_batch.h"
#include "train/stop.h"

namespace qtrain {

Evaluation evaluate(Ctx& ctx, Transformer& model, const Loader& loader) {
  Evaluation e;
  for (std::int64_t i = 0; i < loader.batches_per_epoch() && !stop_requested(); ++i) {
    Batch batch = loader.batch(0, i);
    e.tokens += batch.size();
    e.target_tokens += batch.target_count;
    e.rows += batch.rows;
    ++e.batches;
    if (batch.target_count == 0) continue;
    const DeviceBatch device(std::move(batch));
    e.loss_sum += model.forward(ctx, device.view(), Pass::evaluate);
  }
  return e;
}

}  // namespace qtrain
