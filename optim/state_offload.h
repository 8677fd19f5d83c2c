#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/context.h"
#include "core/param_store.h"

namespace qtrain {

/// The two moments of a parameter, or a part of them.
struct Moments {
  Tensor first, second;
};

/// Brings moments that are kept in pinned memory of the host to the device and back, piece by piece through two
/// buffers: while one piece is worked on, the one before it leaves and the one behind it comes.
class StateOffload {
 public:
  /// `state`: pairs of moments, as declare_adamw_state declares them. Takes memory of the device.
  StateOffload(Device device, ParamStore& state);
  /// Of the device.
  static std::size_t bytes(const ParamStore& state);

  /// A part of pair number `pair` from element `begin` on, on the device.
  struct Piece {
    std::size_t pair;
    std::int64_t begin;
    Moments moments;
  };
  /// Calls `work` for one piece after the other; it queues what changes them on the stream of `ctx`.
  void run(Ctx& ctx, const std::function<void(const Piece&)>& work);

 private:
  struct Part {
    std::size_t pair;
    std::int64_t begin;
    Moments host;
  };
  Piece on_device(std::size_t number) const;
  void fetch(std::size_t number);
  void store(std::size_t number);

  Device device_;
  std::vector<Part> parts_;
  DeviceMemory memory_;
  Stream copies_;
  Event reached_, settled_;
  Event fetched_[2], updated_[2];  ///< by buffer
};

}  // namespace qtrain
