#pragma once
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

/// Device memory for a vector, with copies from and to the host in the order of the context's stream.
template <class T>
class OnGpu {
 public:
  OnGpu(Ctx& ctx, const std::vector<T>& values) : OnGpu(ctx, values.size()) {
    ctx.stream().copy(memory_.data(), values.data(), values.size() * sizeof(T));
  }
  OnGpu(Ctx& ctx, std::size_t count) : ctx_(ctx), count_(count), memory_(ctx.device(), count * sizeof(T)) {}
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> v(count_);
    ctx_.stream().copy(v.data(), memory_.data(), count_ * sizeof(T));
    ctx_.synchronize();
    return v;
  }

 private:
  Ctx& ctx_;
  std::size_t count_;
  DeviceMemory memory_;
};

}  // namespace qtrain::testing
