#pragma once
#include "core/log.h"
#include "train/device_batch.h"

namespace qtrain {

/// Loss over a whole split: the sum over targets divided by their number, whatever the batching.
struct Evaluation {
  double loss_sum = 0;
  std::int64_t tokens = 0, target_tokens = 0, rows = 0, batches = 0;

  double loss() const { return target_tokens > 0 ? loss_sum / static_cast<double>(target_tokens) : 0; }
};

/// Evaluates on the batches of a loader, which must outlive it. The model must be planned for Pass::evaluate with
/// largest_batch.
class Evaluator {
 public:
  Evaluator(Device device, const Loader& loader);
  /// Ends early when a stop is asked for.
  Evaluation run(Ctx& ctx, Transformer& model, Log& log);
  /// Of the device, for batches of up to so many tokens.
  static std::size_t bytes(std::int64_t most_tokens) { return BatchFeed::bytes(most_tokens) + DeviceNumbers::bytes(1); }

 private:
  const Loader& loader_;
  BatchFeed feed_;
  DeviceNumbers loss_sum_;
};

}  // namespace qtrain
