#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/cuda/on_gpu.h"

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
std::vector<Planted> planted_in_mbarriers();
std::vector<Planted> planted_in_streams();

using Floats = OnGpu<float>;

/// 0, 1, 2, ...
inline std::vector<float> counting(std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i);
  return v;
}

}  // namespace qtrain::testing
