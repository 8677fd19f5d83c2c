#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/context.h"
#include "optim/state.h"

namespace qtrain {

/// Copies data from pinned host memory to the device and back, chunk by chunk through two buffers: while one chunk is
/// processed, the previous one is copied out and the next one is copied in.
class StateOffload {
 public:
  /// `chunks` are on the host. Allocates the buffers on the device.
  StateOffload(Device device, std::vector<StateChunk> chunks);
  /// Bytes of device memory for the buffers.
  static std::size_t bytes(const std::vector<StateChunk>& chunks);

  /// Calls `work` for one chunk after another, with the chunk on the device; `work` queues its changes on the stream of
  /// `ctx`.
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
