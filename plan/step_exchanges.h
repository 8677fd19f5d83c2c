#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/transformer.h"
#include "plan/interconnect.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain {

/// Which ranks an exchange is between: see ShardRanks.
enum class Among : std::uint8_t { all, group, replicas };

/// A collective operation of an update.
struct ExchangeCall {
  Exchange what;
  std::string name;  ///< that GuardedCollective gives it, and timelines have: "all_gather of 4096 float32"
  double bytes;      ///< of all these ranks together
  Among among = Among::all;
};

/// What ranks exchange in an update.
struct StepExchanges {
  struct Unit {
    std::vector<ExchangeCall> gather, reduce;
    double from_host = 0;                 ///< bytes that a rank brings to its GPU before it gathers
    std::vector<ExchangeCall> settle;     ///< after the last micro-batch of an update, over replicas
    std::vector<ExchangeCall> replicate;  ///< after the update, likewise

    /// Those of a span of a simulated step.
    const std::vector<ExchangeCall>& of(std::string_view span) const {
      if (span.starts_with("gather")) return gather;
      if (span.starts_with("reduce")) return reduce;
      return span.starts_with("settle") ? settle : replicate;
    }
  };
  std::vector<Unit> units;  ///< by their numbers, of what is divided
  /// Of what every rank has whole: after each micro-batch, and before the update.
  std::vector<ExchangeCall> micro_batch, step;
};
/// Of a model that was declared for so many ranks.
StepExchanges step_exchanges(Transformer& model, const ReductionOptions& reduction, int ranks);

}  // namespace qtrain
