#pragma once
#include <cstdint>
#include <functional>

#include "core/context.h"
#include "dist/collective.h"
#include "model/transformer.h"

namespace qtrain {

/// Whether what ranks exchange of a model goes on beside its passes; on a GPU by an ExchangeStream. Not on GPUs that
/// share tokens: those exchange keys meanwhile, and what two groups of NCCL wait for has to come in one order on all
/// ranks.
bool exchanges_beside(const Transformer& model);

/// A stream of a GPU for what ranks exchange while the stream of a context computes.
class ExchangeStream {
 public:
  using Work = std::function<void(Ctx&, Collective&)>;
  explicit ExchangeStream(Device device) : ctx_(device, MatmulPrecision::storage, 1), reached_(device) {}
  /// Of the device.
  static constexpr std::size_t kBytes = Ctx::kScratchBytes;

  /// Queues work behind all that `ctx` has queued; its stream goes on beside it until the Pending is waited for.
  /// Exchanges are in order: who has waited for one has waited for those before it.
  Pending start(Ctx& ctx, Collective& ranks, const Work& work);

 private:
  Ctx ctx_;
  Event reached_;                       ///< what the next exchange comes behind
  std::uint64_t begun_ = 0, seen_ = 0;  ///< exchanges, and how many of them the context has waited for
};

}  // namespace qtrain
