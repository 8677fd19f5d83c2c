#include "tests/emulator/attention_order.h"

#include "kernels/cuda/attention_turns.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda/on_gpu.h"

namespace qtrain::testing {
namespace {

__global__ void order_of_batch(ops::AttentionBatch batch, ops::KeyTile* ordered, int tiles) {
  ops::order_tiles(batch, ordered, tiles);
}

}  // namespace

std::vector<int> order_of_tiles(Ctx& ctx, const std::vector<std::int32_t>& boundaries, int window) {
  const OnGpu<std::int32_t> cu(ctx, boundaries);
  const int tokens = boundaries.back();
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
  const int tiles = ops::key_tiles(batch);
  const OnGpu<ops::KeyTile> ordered(ctx, ops::ordered_bytes(tiles) / sizeof(ops::KeyTile) + 1);
  launch(ctx, "order", order_of_batch, {1, 64}, batch, ordered.data(), tiles);
  std::vector<ops::KeyTile> values = ordered.values();
  values.resize(static_cast<std::size_t>(tiles));
  std::vector<int> firsts;
  for (const ops::KeyTile& tile : values)
    if (tile.first < tile.key_end) firsts.push_back(tile.first);
  return firsts;
}

}  // namespace qtrain::testing
