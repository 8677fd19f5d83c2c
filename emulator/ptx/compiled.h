#pragma once
#include <array>
#include <memory>

#include "emulator/grid.h"

/// Kernels as compiled by nvcc, which replace those of the C++ compiler (Settings::ptx).
namespace qtrain::emulation::ptx {

struct Call;

struct Argument {
  const void* data;
  std::size_t bytes;
};

/// The nvcc version of `function` with a copy of its arguments; null if kernels of the C++ compiler are used. Throws an
/// Error if there is no kernel with this name and these parameters.
std::shared_ptr<const Call> call_of(const void* function, const char* name, const std::vector<Argument>& arguments);
void run_grid(const Call& call, const char* name, const Extents& extents);

}  // namespace qtrain::emulation::ptx
