#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "core/param_store.h"
#include "train/gradient_reducer.h"
#include "train/shard_ranks.h"

namespace qtrain {

/// Moves the rows of groups of parameters between the ranks that they are divided among, beside what the caller does
/// meanwhile: on a processor by Collective::start, on a GPU on a stream of its own. What is begun comes behind all that
/// the context had queued, and the context's stream goes on beside it until the Pending is waited for. Where groups of
/// ranks are replicas, ReductionOrder::ranks adds gradients within them, and the sums of an update over them; with
/// ReductionOrder::micro_batches each replica adds a piece of every row over all ranks.
class ShardExchange {
 public:
  struct Options {
    Device device;
    ReductionOrder order = ReductionOrder::ranks;
    bool own_stream = false;  ///< of a GPU; else exchanges are on the stream of the context
  };
  /// For the groups of these stores, which are on the device.
  ShardExchange(ShardRanks& ranks, const Options& options, std::span<const ParamStore* const> stores);
  /// Bytes of the device.
  static std::size_t bytes(const Options& options, std::span<const ParamStore* const> stores);
  /// The most elements that one of so many ranks sends to another at once where gradients are not scattered: on a GPU
  /// more, since the hosts compare each call.
  static std::int64_t max_columns(Device device, int ranks);
  /// Whether gradients of the group are added by Collective::reduce_scatter: on a GPU, where no order is asked for.
  static bool scatters(const Options& options, const ShardGroup& group);

  /// Waits for what is under way, or ends it where an error is.
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  /// Every rank has all values of the group then.
  Pending gather(Ctx& ctx, const ShardGroup& group);
  /// Adds the gradients of ranks, each rank its own row: to what is there or instead of it. In the order of the ranks,
  /// unless they are scattered; then `grads` has other values afterwards.
  Pending reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode);
  /// After the last one of an update: the own row has the sums over all ranks then.
  Pending settle(Ctx& ctx, const ShardGroup& group);
  /// The own row, which is on the device, has the values of the first replica then.
  Pending replicate(Ctx& ctx, const ShardGroup& group);

 private:
  using Work = std::function<void(Ctx&, Collective&)>;
  Pending start(Ctx& ctx, Collective& ranks, const Work& work);
  Pending start_beside(Ctx& ctx, Collective& ranks, const Work& work);
  bool adds_pieces() const { return options_.order == ReductionOrder::micro_batches; }

  ShardRanks& ranks_;
  Options options_;
  std::optional<Ctx> beside_;           ///< with a stream of its own
  Event reached_;                       ///< what the next exchange comes behind
  std::uint64_t begun_ = 0, seen_ = 0;  ///< exchanges on that stream, and how many of them the context has waited for
  DeviceMemory memory_;
  Pending last_;
};

}  // namespace qtrain
