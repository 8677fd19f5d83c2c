#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

enum class Variant : std::uint8_t { right, wrong };

/// A small program with a mistake that is typical of kernels, and the correct version.
struct Planted {
  std::string name;
  /// Queues the program, synchronizes and returns the results.
  std::function<std::vector<float>(Ctx&, Variant)> run;
  std::vector<float> result;   ///< result of the correct variant
  std::string complaint;       ///< part of the wrong variant's error; empty: its result differs instead
  bool compiled_away = false;  ///< nvcc's optimization removes the mistake
};
inline void PrintTo(const Planted& p, std::ostream* out) {
  *out << p.name;
}

std::vector<Planted> planted_in_blocks();
std::vector<Planted> planted_in_memory();
std::vector<Planted> planted_in_tiles();
std::vector<Planted> planted_in_warpgroups();
std::vector<Planted> planted_in_streams();

/// Device memory for `values` floats, with copies from and to the host in the order of the context's stream.
class Floats {
 public:
  Floats(Ctx& ctx, std::size_t count) : ctx_(ctx), count_(count), memory_(ctx.device(), count * sizeof(float)) {}
  Floats(Ctx& ctx, const std::vector<float>& values) : Floats(ctx, values.size()) {
    ctx.stream().copy(memory_.data(), values.data(), values.size() * sizeof(float));
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  std::vector<float> values() const {
    std::vector<float> v(count_);
    ctx_.stream().copy(v.data(), memory_.data(), count_ * sizeof(float));
    ctx_.synchronize();
    return v;
  }

 private:
  Ctx& ctx_;
  std::size_t count_;
  DeviceMemory memory_;
};

/// 0, 1, 2, ...
inline std::vector<float> counting(std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i);
  return v;
}

}  // namespace qtrain::testing
