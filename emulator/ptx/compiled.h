#pragma once
#include <array>
#include <memory>

#include "emulator/grid.h"

/// Kernels as nvcc compiled them, in place of those of the C++ compiler (Settings::ptx).
namespace qtrain::emulation::ptx {

struct Call;

struct Argument {
  const void* data;
  std::size_t bytes;
};

/// The kernel `function` of this program with copies of its arguments; null where kernels run as the C++ compiler
/// compiled them. An Error where nvcc's have none of the name and parameters.
std::shared_ptr<const Call> call_of(const void* function, const char* name, const std::vector<Argument>& arguments);
void run_grid(const Call& call, const char* name, const Extents& extents);

}  // namespace qtrain::emulation::ptx
