#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/param_store.h"
#include "dist/collective.h"

namespace qtrain {

/// Moves the rows of groups of parameters between the ranks that they are divided among, on a processor beside what
/// the caller does meanwhile (see Collective::start), on a GPU on its stream.
class ShardExchange {
 public:
  static constexpr std::int64_t kMaxColumns = std::int64_t{1} << 18;  ///< elements that a rank sends to another at once

  /// For the groups of these stores, which are on `device`.
  ShardExchange(Collective& ranks, Device device, std::span<const ParamStore* const> stores);
  /// Bytes of the device.
  static std::size_t bytes(int ranks, std::span<const ParamStore* const> stores);

  /// Waits for what is under way, or ends it where an error is.
  ~ShardExchange();
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  /// Every rank has all values of the group then.
  Pending gather(Ctx& ctx, const ShardGroup& group);
  /// Adds the gradients of all ranks in the order of the ranks, each rank its own row: to what is there or instead of
  /// it.
  Pending reduce(Ctx& ctx, const ShardGroup& group, Sink::Mode mode);

 private:
  Pending start(std::function<void(Collective&)> work);

  Collective& ranks_;
  DeviceMemory memory_;
  Pending last_;
};

}  // namespace qtrain
