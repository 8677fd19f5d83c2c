#pragma once
#include <cstddef>
#include <tuple>
#include <utility>

#include <target/launch.cuh>

#include "core/context.h"

namespace qtrain {

/// The blocks and threads of a launch, and the shared memory per block (sizeof the type passed to shared_memory<T>()).
struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

/// The only place where kernels are launched, on the stream of `ctx`. `name` is the op's name, with static storage;
/// errors and profiles show it. Arguments are converted to the kernel's parameter types. Does nothing if the grid is
/// empty.
template <class... P, class... A>
void launch(Ctx& ctx, const char* name, void (*kernel)(P...), const Grid& grid, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "launch: wrong number of arguments for the kernel");
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  const Stream::Launch launched(ctx.stream(), name);
  target::submit(ctx.stream().handle(), name, kernel, {grid.blocks, grid.threads, grid.shared_bytes},
                 std::tuple<P...>{static_cast<P>(std::forward<A>(args))...});
}

}  // namespace qtrain
