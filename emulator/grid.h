#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/thread.h"

namespace qtrain::emulation {

/// A kernel with its arguments. `run` calls the kernel once for the calling thread.
struct Kernel {
  const char* name;
  void (*run)(const void* arguments);
  const void* arguments;
  std::size_t argument_bytes;
};
struct Extents {
  Index3 blocks, threads;
  std::size_t shared_bytes = 0;
};

/// What a GPU checks when a kernel is launched, as an Error that names it.
void check_launch(const char* name, const Extents& extents);
/// A pointer that a kernel gets must be null or lie on the device.
void check_argument(const char* name, const void* pointer);
/// Runs the whole grid in the order of the settings; throws the first fault.
void run_grid(const Kernel& kernel, const Extents& extents);

}  // namespace qtrain::emulation
