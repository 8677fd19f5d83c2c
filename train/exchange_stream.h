#pragma once
#include <cstdint>
#include <functional>

#include "core/context.h"
#include "dist/collective.h"

namespace qtrain {

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
