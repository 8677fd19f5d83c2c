#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/transformer.h"
#include "plan/interconnect.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// The ranks that take part in a collective: see ShardRanks.
enum class Among : std::uint8_t { all, group, replicas };

/// A collective of an optimizer step.
struct ExchangeCall {
  Exchange what;
  std::string name;  ///< as in GuardedCollective and timelines: "all_gather of 4096 float32"
  double bytes = 0;  ///< over all these ranks
  Among among = Among::all;
};

/// The collectives of an optimizer step.
struct StepExchanges {
  struct Unit {
    std::vector<ExchangeCall> gather, reduce;
    double from_host = 0;                 ///< bytes that a rank copies to its GPU before gathering
    std::vector<ExchangeCall> settle;     ///< after the last micro-batch, over replicas
    std::vector<ExchangeCall> replicate;  ///< after the update, over replicas

    /// The collectives of a span of a simulated step.
    const std::vector<ExchangeCall>& of(std::string_view span) const {
      if (span.starts_with("gather")) return gather;
      if (span.starts_with("reduce")) return reduce;
      return span.starts_with("settle") ? settle : replicate;
    }
  };
  std::vector<Unit> units;  ///< by unit number, for sharded parameters
  /// For unsharded parameters: after each micro-batch, and before the update.
  std::vector<ExchangeCall> micro_batch, step;
};
/// The collectives of a model that was declared for `ranks` ranks.
StepExchanges step_exchanges(Transformer& model, const ReductionOptions& reduction, int ranks);

}  // namespace qtrain
