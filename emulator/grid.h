#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/thread.h"

namespace qtrain::emulation {

/// A kernel with its arguments. `run` calls the kernel once, for the calling CUDA thread.
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

/// Checks what a GPU checks when a kernel is launched; throws an Error that names the kernel.
void check_launch(const char* name, const Extents& extents);
/// Throws unless a pointer argument of a kernel is null or device memory.
void check_argument(const char* name, const void* pointer);
/// Runs the whole grid in the order given by the settings; throws the first fault.
void run_grid(const Kernel& kernel, const Extents& extents);

}  // namespace qtrain::emulation
