#pragma once
#include <cstdint>

#include "core/context.h"

namespace qtrain {

/// Where the inputs of blocks that the backward pass starts from wait for it.
enum class BlockInputs : std::uint8_t {
  device,
  host,  ///< in pinned memory: two of them are on the device at a time
};

/// Carries the inputs of groups of blocks to the host and back beside the work of the context, through two buffers on
/// the device: group g has buffer g % 2. The inputs of the last two groups stay in theirs.
class InputOffload {
 public:
  /// Of so many groups.
  InputOffload(Device device, std::int64_t groups);

  /// Forward, when the input of `group` is there: queues its copy to the host.
  void store(Ctx& ctx, std::int64_t group, ConstTensor input, Tensor host);
  /// Forward, before the work that writes the input of `group`: it waits until the buffer is free.
  void make_room(Ctx& ctx, std::int64_t group);
  /// Backward, before the work that reads the input of `group`: it waits until the input is back.
  void await(Ctx& ctx, std::int64_t group);
  /// Backward, after `await` of the group behind: queues the way back of the input of `group`.
  void fetch(Ctx& ctx, std::int64_t group, Tensor input, ConstTensor host);

 private:
  bool travels(std::int64_t group) const { return group >= 0 && group + 2 < groups_; }

  std::int64_t groups_;
  Stream copies_;
  Event reached_;              ///< what the next copy has to wait for
  Event stored_[2], back_[2];  ///< by buffer
};

}  // namespace qtrain
