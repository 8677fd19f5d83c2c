#pragma once
#include "core/log.h"
#include "dist/collective.h"
#include "train/step/device_batch.h"

namespace qtrain {

/// Loss over a whole split: the summed loss divided by the number of targets, independent of batching. For models
/// trained with a router loss, adds its mean over the batches times its coefficient.
struct Evaluation {
  double loss_sum = 0;
  std::int64_t tokens = 0, target_tokens = 0, rows = 0, batches = 0;

  double router_sum = 0, router_coefficient = 0;

  /// Mean router loss of the batches, without its coefficient.
  double router_loss() const { return batches > 0 ? router_sum / static_cast<double>(batches) : 0; }
  double loss() const {
    const double of_targets = target_tokens > 0 ? loss_sum / static_cast<double>(target_tokens) : 0;
    return of_targets + router_coefficient * router_loss();
  }
};

struct EvaluationOptions {
  ContextShare share = {};
  ops::TargetLoss loss = {};
};

/// Evaluates the batches of a loader, each rank its own or shared with the ranks that share tokens. Loader and ranks
/// must outlive this object. The runner must be planned for Pass::evaluate with largest_batch.
class Evaluator {
 public:
  Evaluator(Device device, const Loader& loader, Collective& ranks, const EvaluationOptions& options = {});
  /// Returns the evaluation over all ranks. Ends early when a stop is requested.
  Evaluation run(Ctx& ctx, Runner& runner, Log& log);
  /// Bytes of device memory for batches of up to `max_tokens` tokens.
  static std::size_t bytes(std::int64_t max_tokens, const ContextShare& share) {
    return BatchFeed::bytes(max_tokens, share) + DeviceNumbers::bytes(2);
  }

 private:
  bool stops(Ctx& ctx, const Transformer& model) const;
  void add_over_ranks(Ctx& ctx, Evaluation& e);

  const Loader& loader_;
  Collective& ranks_;
  ContextShare share_;
  ops::TargetLoss loss_;
  BatchFeed feed_;
  DeviceNumbers sums_;  ///< of targets, of routers
};

}  // namespace qtrain
