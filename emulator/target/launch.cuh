#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>

#include <target/intrinsics.cuh>

#include "emulator/device.h"
#include "emulator/grid.h"
#include "emulator/ptx/compiled.h"

namespace qtrain::target {

struct Shape {
  dim3 blocks, threads;
  std::size_t shared_bytes;
};

template <class P>
void check_argument(const char* name, const P& p) {
  if constexpr (std::is_pointer_v<P>) emulation::check_argument(name, p);
}

/// Queues the kernel; it runs when somebody waits for the stream.
template <class... P>
void submit(void* stream, const char* name, void (*kernel)(P...), const Shape& shape, std::tuple<P...> args) {
  const emulation::Extents extents{.blocks = {shape.blocks.x, shape.blocks.y, shape.blocks.z},
                                   .threads = {shape.threads.x, shape.threads.y, shape.threads.z},
                                   .shared_bytes = shape.shared_bytes};
  emulation::check_launch(name, extents);
  std::apply([&](const auto&... p) { (check_argument(name, p), ...); }, args);
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> args;
  };
  auto inputs = std::apply([&](const auto&... p) { return emulation::bytes_of(kernel, extents, p...); }, args);
  auto compiled = std::apply(
      [&](const auto&... p) {
        return emulation::ptx::call_of(reinterpret_cast<const void*>(kernel), name, {{&p, sizeof p}...});
      },
      args);
  const auto run = [name, extents, call = Call{kernel, std::move(args)}, compiled = std::move(compiled)] {
    if (compiled) return emulation::ptx::run_grid(*compiled, name, extents);
    const auto thread = [](const void* c) {
      std::apply(static_cast<const Call*>(c)->kernel, static_cast<const Call*>(c)->args);
    };
    emulation::run_grid({.name = name, .run = thread, .arguments = &call, .argument_bytes = sizeof call}, extents);
  };
  emulation::enqueue(stream, {.run = run, .name = name, .inputs = std::move(inputs)});
}

}  // namespace qtrain::target
