#pragma once
#include <cstddef>
#include <string>
#include <tuple>

#include <target/intrinsics.cuh>

#include "core/error.h"

namespace qtrain::target {

struct Shape {
  dim3 blocks, threads;
  std::size_t shared_bytes;
};

inline void verify(cudaError_t code, const char* name) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  fail(code == cudaErrorMemoryAllocation ? ErrorKind::memory : ErrorKind::internal,
       {.cause = std::string("kernel ") + name + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code)});
}

template <class... P>
void submit(void* stream, const char* name, void (*kernel)(P...), const Shape& shape, std::tuple<P...> args) {
  constexpr std::size_t kAlwaysAllowed = 48 << 10;
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes > kAlwaysAllowed)
    verify(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(shape.shared_bytes)),
           name);
  std::apply(
      [&](auto&... p) {
        void* pointers[] = {static_cast<void*>(&p)..., nullptr};
        verify(cudaLaunchKernel(function, shape.blocks, shape.threads, pointers, shape.shared_bytes,
                                static_cast<cudaStream_t>(stream)),
               name);
      },
      args);
}

}  // namespace qtrain::target
