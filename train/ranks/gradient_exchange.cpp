#include "train/ranks/gradient_exchange.h"

#include "train/ranks/divided_model.h"
#include "train/ranks/gradient_reducer.h"

namespace qtrain {

std::unique_ptr<GradientExchange> make_gradient_exchange(const ExchangeParts& parts, const ReductionOptions& options) {
  Transformer& model = parts.runner.model();
  if (!model.options().sharding.divides_trained())
    return std::make_unique<GradientReducer>(parts.ranks, options, model.trained());
  check(parts.division, "a sharded model needs the ranks that share it");
  return std::make_unique<DividedModel>(parts.runner, *parts.division, options);
}

std::size_t gradient_exchange_bytes(Transformer& model, int ranks, const ReductionOptions& options) {
  if (model.options().sharding.divides_trained()) return DividedModel::bytes(options, model);
  return GradientReducer::bytes(model.device(), ranks, options, model.trained());
}

}  // namespace qtrain
