#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/context.h"
#include "optim/state.h"

namespace qtrain {

/// Brings what is kept in pinned memory of the host to the device and back, chunk by chunk through two buffers:
/// while one chunk is worked on, the one before it leaves and the one behind it comes.
class StateOffload {
 public:
  /// `chunks`: of the host. Takes memory of the device.
  StateOffload(Device device, std::vector<StateChunk> chunks);
  /// Of the device.
  static std::size_t bytes(const std::vector<StateChunk>& chunks);

  /// Calls `work` for one chunk after the other, now on the device; it queues what changes them on the stream of `ctx`.
  void run(Ctx& ctx, const std::function<void(const StateChunk&)>& work);

 private:
  StateChunk on_device(std::size_t number) const;
  void copy(const StateChunk& to, const StateChunk& from);
  void fetch(std::size_t number);
  void store(std::size_t number);

  Device device_;
  std::vector<StateChunk> chunks_;
  DeviceMemory memory_;
  Stream copies_;
  Event reached_, settled_;
  Event fetched_[2], updated_[2];  ///< by buffer
};

}  // namespace qtrain
