#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "core/param_store.h"
#include "train/ranks/exchange_stream.h"
#include "train/ranks/gradient_buckets.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain {

/// Moves the rows of groups of parameters between the ranks that they are divided among, beside what the caller does
/// meanwhile: on a processor by Collective::start, on a GPU on a stream of its own. What is begun comes behind all that
/// the context had queued, and the context's stream goes on beside it until the Pending is waited for. Where groups of
/// ranks are replicas, ReductionOrder::ranks adds gradients within them, and the sums of an update over them; with
/// ReductionOrder::micro_batches each replica adds a piece of every row over all ranks. What is rounded on its way is
/// added in the type of the gradients, but by NCCL.
class ShardExchange {
 public:
  struct Options {
    Device device;
    ReductionOrder order = ReductionOrder::ranks;
    DType wire = DType::f32;  ///< bf16: wider gradients are rounded to it on their way
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
  /// The type in which gradients of the group are sent, and whether they are rounded for that.
  static DType wire_of(const Options& options, const ShardGroup& group);
  static bool rounds(const Options& options, const ShardGroup& group);
  /// Whether the sums of an update are rounded to Options::wire for their way over replicas.
  static bool rounds_sums(const Options& options, const ShardGroup& group);

  /// Waits for what is under way, or ends it where an error is.
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  /// Every rank has all values of the group then.
  Pending gather(Ctx& ctx, const ShardGroup& group);
  /// Adds the gradients of ranks, each rank its own row: to what is there or instead of it. In the order of the ranks,
  /// unless they are scattered; then, where they are not rounded, `grads` has other values afterwards.
  Pending reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode);
  /// After the last one of an update: the own row has the sums over all ranks then.
  Pending settle(Ctx& ctx, const ShardGroup& group);
  /// The own row, which is on the device, has the values of the first replica then.
  Pending replicate(Ctx& ctx, const ShardGroup& group);

 private:
  Pending start(Ctx& ctx, Collective& ranks, const ExchangeStream::Work& work);
  Messages messages_for(const ShardGroup& group, const GradientParts& parts) const;
  void add_replicas(Ctx& ctx, Collective& replicas, const ShardGroup& group) const;
  bool adds_pieces() const { return options_.order == ReductionOrder::micro_batches; }

  ShardRanks& ranks_;
  Options options_;
  std::optional<ExchangeStream> beside_;
  DeviceMemory memory_;
  Pending last_;
};

}  // namespace qtrain
