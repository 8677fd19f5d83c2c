#pragma once
#include <cstdint>
#include <functional>

#include "core/context.h"
#include "dist/collective.h"
#include "model/transformer.h"

namespace qtrain {

/// Whether exchanges overlap with the passes of a model (on a GPU by means of an ExchangeStream). Not with context
/// parallelism on GPUs: keys are exchanged at the same time, and operations of two NCCL groups must be issued in the
/// same order on all ranks.
bool exchanges_beside(const Transformer& model);

/// A GPU stream for exchanges between ranks, next to the compute stream of a context.
class ExchangeStream {
 public:
  using Work = std::function<void(Ctx&, Collective&)>;
  explicit ExchangeStream(Device device) : ctx_(device, MatmulPrecision::storage, 1), reached_(device) {}
  /// Bytes of device memory that this needs.
  static constexpr std::size_t kBytes = Ctx::kScratchBytes;

  /// Queues work after everything that `ctx` has queued; the stream of `ctx` continues in parallel until it waits for
  /// the returned Pending. Exchanges run in order: waiting for one also waits for the earlier ones.
  Pending start(Ctx& ctx, Collective& ranks, const Work& work);

 private:
  Ctx ctx_;
  Event reached_;                       ///< the point that the next exchange waits for
  std::uint64_t begun_ = 0, seen_ = 0;  ///< exchanges started, and how many of them the context has waited for
};

}  // namespace qtrain
