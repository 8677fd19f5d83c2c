#include "tests/emulator/attention_order.h"

#include "kernels/cuda/attention_turns.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda/on_gpu.h"

namespace qtrain::testing {
namespace {

__global__ void order_of_batch(ops::AttentionBatch batch, int* order) {
  ops::order_tiles(batch, order);
}

}  // namespace

std::vector<int> order_of_tiles(Ctx& ctx, const std::vector<std::int32_t>& boundaries, int window) {
  const OnGpu<std::int32_t> cu(ctx, boundaries);
  const int tokens = boundaries.back();
  const OnGpu<int> order(ctx, ops::order_elements(tokens));
  const ops::AttentionBatch batch{.cu = cu.data(),
                                  .segments = static_cast<int>(boundaries.size()) - 1,
                                  .tokens = tokens,
                                  .heads = 1,
                                  .groups = 1,
                                  .width = 64,
                                  .window = window,
                                  .queries = {0, tokens},
                                  .scale = 1,
                                  .softcap = 0,
                                  .tanh_scale = 0};
  launch(ctx, "order", order_of_batch, {1, 64}, batch, order.data());
  std::vector<int> values = order.values();
  values.resize(values.size() / 3);
  return values;
}

}  // namespace qtrain::testing
