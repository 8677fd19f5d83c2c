#pragma once
#include <cstddef>
#include <tuple>
#include <utility>

#include <target/launch.cuh>

#include "core/context.h"

namespace qtrain {

/// The blocks and threads of a launch, and the shared memory of a block (sizeof what shared_memory<T>() is asked for).
struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

/// The only place where kernels are launched, on the stream of `ctx`. `name` is the op's, with static storage: errors
/// and profiles name it. Arguments are converted to the kernel's parameters. Without blocks nothing happens.
template <class... P, class... A>
void launch(Ctx& ctx, const char* name, void (*kernel)(P...), const Grid& grid, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "launch: another number of arguments than the kernel has parameters");
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  const Stream::Launch launched(ctx.stream(), name);
  target::submit(ctx.stream().handle(), name, kernel, {grid.blocks, grid.threads, grid.shared_bytes},
                 std::tuple<P...>{static_cast<P>(std::forward<A>(args))...});
}

}  // namespace qtrain
