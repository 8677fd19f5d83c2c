#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

enum class Variant : std::uint8_t { right, wrong };

/// A small program with a mistake of the kind that kernels have, and its twin without it.
struct Planted {
  std::string name;
  /// Queues the program, synchronizes and returns what it computed.
  std::function<std::vector<float>(Ctx&, Variant)> run;
  std::vector<float> result;   ///< of the right variant
  std::string complaint;       ///< part of the error of the wrong one; empty: its result differs instead
  bool compiled_away = false;  ///< the wrong one's PTX does not show the mistake
};
inline void PrintTo(const Planted& p, std::ostream* out) {
  *out << p.name;
}

std::vector<Planted> planted_in_blocks();
std::vector<Planted> planted_in_memory();
std::vector<Planted> planted_in_tiles();
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
