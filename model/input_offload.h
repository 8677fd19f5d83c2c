#pragma once
#include <cstdint>

#include "core/context.h"

namespace qtrain {

/// Where the block inputs that the backward pass starts from are kept until then.
enum class BlockInputs : std::uint8_t {
  device,
  host,  ///< pinned host memory; two at a time are on the device
};

/// Copies the inputs of groups of blocks to the host and back, overlapped with the context's work, through two device
/// buffers: group g uses buffer g % 2. The inputs of the last two groups stay in their buffers.
class InputOffload {
 public:
  InputOffload(Device device, std::int64_t groups);

  /// Forward, after the input of `group` was computed: queues its copy to the host.
  void store(Ctx& ctx, std::int64_t group, ConstTensor input, Tensor host);
  /// Forward, before the input of `group` is written: waits until its buffer is free.
  void make_room(Ctx& ctx, std::int64_t group);
  /// Backward, before the input of `group` is read: waits until it is back on the device.
  void await(Ctx& ctx, std::int64_t group);
  /// Backward, after `await` of the next group: queues the copy of the input of `group` back to the device.
  void fetch(Ctx& ctx, std::int64_t group, Tensor input, ConstTensor host);

 private:
  bool travels(std::int64_t group) const { return group >= 0 && group + 2 < groups_; }

  std::int64_t groups_;
  Stream copies_;
  Event reached_;              ///< what the next copy must wait for
  Event stored_[2], back_[2];  ///< by buffer
};

}  // namespace qtrain
