#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/context.h"
#include "dist/collective.h"

namespace qtrain {

/// Exchanges between ranks, in the order in which they are started. On a CPU they run as Collective::start says; on a
/// GPU on the context's stream or, to overlap with computation, on a separate stream.
class ExchangeQueue {
 public:
  using Work = std::function<void(Ctx&, Collective&)>;
  /// `cancel` ends pending exchanges with an error.
  ExchangeQueue(Device device, bool beside, std::function<void()> cancel);
  /// Bytes of device memory that this needs.
  static constexpr std::size_t bytes(Device device, bool beside) {
    return beside && device.kind == DeviceKind::cuda ? Ctx::kScratchBytes : 0;
  }
  /// Waits for pending exchanges, or cancels them if an error is propagating. What they use has to live until then.
  ~ExchangeQueue();
  ExchangeQueue(const ExchangeQueue&) = delete;
  ExchangeQueue& operator=(const ExchangeQueue&) = delete;

  /// Queues work after everything that `ctx` has queued. With its own stream, the one of `ctx` continues in parallel
  /// until it waits for the returned Pending. Waiting for an exchange also waits for the earlier ones.
  Pending start(Ctx& ctx, Collective& ranks, const Work& work);

 private:
  struct OwnStream {
    explicit OwnStream(Device device) : ctx(device, MatmulPrecision::storage, 1), reached(device) {}
    Pending start(Ctx& caller, Collective& ranks, const Work& work);

    Ctx ctx;
    Event reached;                      ///< the point that the next exchange waits for
    std::uint64_t begun = 0, seen = 0;  ///< exchanges started, and how many of them the context has waited for
  };
  std::function<void()> cancel_;
  Pending last_;
  std::optional<OwnStream> own_;
};

}  // namespace qtrain
