#include "tests/emulator/attention_order.h"

#include "kernels/cuda/attention_turns.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/cuda/on_gpu.h"

namespace qtrain::testing {
namespace {

constexpr int kQueries = 64;

__global__ void order_of_batch(ops::AttentionBatch batch, ops::KeyTile* ordered, int tiles) {
  ops::order_tiles(batch, ordered, tiles);
}

/// Writes `count` tiles, and the numbers in use behind them.
__global__ void tiles_of_batch(ops::AttentionBatch batch, int count, Tokens* tiles) {
  const ops::DocumentTiles all{batch, batch.queries, kQueries, ops::cut_documents(batch)};
  for (int t = 0; t < count; ++t) {
    const ops::TokenSpan tokens = ops::query_tile(all, t).tokens;
    tiles[t] = {tokens.begin, tokens.end};
  }
  const ops::NumberSpan used = all.used();
  tiles[count] = {used.begin, used.end};
}

int tokens_of(const Documents& documents) {
  return documents.boundaries.back() + documents.padding;
}
ops::AttentionBatch batch_of(const std::int32_t* cu, const Documents& documents, Tokens queries) {
  return {.cu = cu,
          .segments = static_cast<int>(documents.boundaries.size()) - 1,
          .tokens = tokens_of(documents),
          .heads = 1,
          .groups = 1,
          .width = 64,
          .window = documents.window,
          .queries = {queries.begin, queries.end},
          .scale = 1,
          .softcap = 0,
          .tanh_scale = 0};
}

}  // namespace

std::vector<int> order_of_tiles(Ctx& ctx, const Documents& documents) {
  const OnGpu<std::int32_t> cu(ctx, documents.boundaries);
  const ops::AttentionBatch batch = batch_of(cu.data(), documents, {0, tokens_of(documents)});
  const int tiles = ops::key_tiles(batch);
  const OnGpu<ops::KeyTile> ordered(ctx, ops::ordered_bytes(tiles) / sizeof(ops::KeyTile) + 1);
  launch(ctx, "order", order_of_batch, {1, 64}, batch, ordered.data(), tiles);
  std::vector<ops::KeyTile> values = ordered.values();
  values.resize(static_cast<std::size_t>(tiles));
  std::vector<int> firsts;
  for (const ops::KeyTile& tile : values) firsts.push_back(tile.first < tile.key_end ? tile.first : -1);
  return firsts;
}

NumberedTiles tiles_of(Ctx& ctx, const Documents& documents, Tokens queries) {
  const OnGpu<std::int32_t> cu(ctx, documents.boundaries);
  const ops::AttentionBatch batch = batch_of(cu.data(), documents, queries);
  const int count = ops::DocumentTiles::numbers(batch, batch.rows(), kQueries);
  const OnGpu<Tokens> tiles(ctx, static_cast<std::size_t>(count) + 1);
  launch(ctx, "tiles", tiles_of_batch, {1, 1}, batch, count, tiles.data());
  std::vector<Tokens> values = tiles.values();
  const Tokens used = values.back();
  values.pop_back();
  return {values, used.begin, used.end};
}

}  // namespace qtrain::testing
