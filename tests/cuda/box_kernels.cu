#include "tests/cuda/box_kernels.h"

#include <target/tensor_map.h>

#include <cstddef>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda/on_gpu.h"

namespace qtrain::testing {
namespace {

constexpr int kRowElements = 64, kMaxRows = 256, kThreads = 64;

struct alignas(1024) BoxMemory {
  std::uint16_t elements[kMaxRows * kRowElements];
  ptx::Mbarrier full;
};
struct Start {
  int x, y, z, rows;
};

__global__ void copy_one_box(std::uint16_t* out, Start start, const __grid_constant__ target::TensorMap map) {
  auto& s = shared_memory<BoxMemory>();
  const int thread = static_cast<int>(threadIdx.x), elements = start.rows * kRowElements;
  if (thread == 0) {
    ptx::init(s.full, 1);
    ptx::fence_proxy_async();
    ptx::arrive_and_expect(s.full, static_cast<unsigned>(elements) * 2);
    ptx::copy_box(s.elements, map, {start.x, start.y, start.z}, s.full);
  }
  __syncthreads();
  ptx::wait(s.full, 0);
  for (int i = thread; i < elements; i += kThreads) out[i] = s.elements[i];
}

}  // namespace

std::vector<std::uint16_t> copied_box(Ctx& ctx, const BoxTask& task) {
  const auto [x, y, z] = task.extents;
  std::vector<std::uint16_t> elements(static_cast<std::size_t>(x) * static_cast<std::size_t>(y * z));
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::uint16_t>(i);
  const OnGpu<std::uint16_t> tensor(ctx, elements);
  const int rows = task.box[0] * task.box[1];
  OnGpu<std::uint16_t> out(ctx, static_cast<std::size_t>(rows) * kRowElements);
  const target::TensorMap map = target::tensor_map_of({.data = tensor.data(),
                                                       .extents = {x, y, z},
                                                       .strides = {2 * x, 2 * x * y},
                                                       .box = {kRowElements, task.box[0], task.box[1]}});
  launch(ctx, "box", copy_one_box, {1, kThreads, sizeof(BoxMemory)}, out.data(),
         Start{task.at[0], task.at[1], task.at[2], rows}, map);
  return out.values();
}

}  // namespace qtrain::testing
