#include <algorithm>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/kernels/support.h"

namespace qtrain {
namespace {

using testing::Array;
using testing::integers;
using testing::random;

/// Appending tokens one by one and attending to the cache equals causal attention over the whole row.
void expect_cache_is_attention(DType d, std::int64_t window, double softcap, bool with_sinks) {
  const std::int64_t T = 23, Hq = 6, Hkv = 2, D = 10, capacity = 30;
  const double scale = 0.3;
  Ctx ctx({}, MatmulPrecision::storage, 2);
  Array q = random(d, {T, Hq, D}, 1), k = random(d, {T, Hkv, D}, 2), v = random(d, {T, Hkv, D}, 3), y(d, {T, Hq, D});
  Array lse(d == DType::f64 ? d : DType::f32, {Hq, T}), cu = integers({0, static_cast<std::int32_t>(T)});
  Array sinks = random(lse.dtype(), {Hq}, 4);
  const ConstTensor scores = with_sinks ? ConstTensor(sinks.tensor()) : ConstTensor{};
  ops::attention(ctx, {.y = y,
                       .lse = lse,
                       .q = q,
                       .k = k,
                       .v = v,
                       .cu_seqlens = cu,
                       .window = window,
                       .scale = scale,
                       .softcap = softcap,
                       .sinks = scores});
  Array keys(d, {3, capacity, Hkv, D}), values(d, {3, capacity, Hkv, D}), out(d, {T, Hq, D});
  for (std::int64_t begin = 0, count; begin < T; begin += count) {
    count = begin == 0 ? 9 : std::min<std::int64_t>(5, T - begin);  // a prompt, then a few tokens at a time
    std::vector<std::int32_t> row(static_cast<std::size_t>(count), 1), position;
    for (std::int64_t i = 0; i < count; ++i) position.push_back(static_cast<std::int32_t>(begin + i));
    Array rows = integers(row), positions = integers(position);
    ops::cache_append(ctx, {.cache = keys, .x = k.tensor().slice(begin, count), .rows = rows, .positions = positions});
    ops::cache_append(ctx,
                      {.cache = values, .x = v.tensor().slice(begin, count), .rows = rows, .positions = positions});
    ops::cached_attention(ctx, {.y = out.tensor().slice(begin, count),
                                .q = q.tensor().slice(begin, count),
                                .keys = keys,
                                .values = values,
                                .rows = rows,
                                .positions = positions,
                                .window = window,
                                .scale = scale,
                                .softcap = softcap,
                                .sinks = scores});
  }
  const double tolerance = d == DType::f64 ? 1e-12 : d == DType::f32 ? 1e-5 : 0.03;
  for (std::int64_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out.get(i), y.get(i), tolerance) << name_of(d) << " " << i;
}

TEST(CachedAttention, IsCausalAttention) {
  for (const DType d : {DType::f64, DType::f32, DType::bf16})
    for (const std::int64_t window : {0, 4})
      for (const double softcap : {0.0, 1.25})
        for (const bool sinks : {false, true}) expect_cache_is_attention(d, window, softcap, sinks);
}

TEST(CachedAttention, RowsDoNotSeeEachOther) {
  Ctx ctx;
  Array keys = random(DType::f32, {2, 4, 1, 8}, 1), values = random(DType::f32, {2, 4, 1, 8}, 2),
        q = random(DType::f32, {2, 1, 8}, 3);
  Array y(DType::f32, {2, 1, 8}), again(DType::f32, {2, 1, 8}), rows = integers({1, 0}), positions = integers({2, 0});
  const ops::CachedAttention op{
      .y = y, .q = q, .keys = keys, .values = values, .rows = rows, .positions = positions, .scale = 1};
  ops::cached_attention(ctx, op);
  for (std::int64_t i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(y.get(8 + i)), static_cast<float>(values.get(i)));
  keys.set(1, 100);      // row 0: must not change token 0, which belongs to row 1
  values.set(60, 1e30);  // row 1, position 3: not visible from position 2
  ops::CachedAttention second = op;
  second.y = again;
  ops::cached_attention(ctx, second);
  EXPECT_TRUE(std::equal(y.bytes().begin(), y.bytes().begin() + 32, again.bytes().begin()));
}

/// Tokens of two rows against contiguous caches, and caches of blocks of 4 in any order.
TEST(CachedAttention, HasTheSameBitsOverBlocks) {
  const std::int64_t Hq = 4, Hkv = 2, D = 8;
  const std::vector<std::int32_t> row{0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0}, position{0, 1, 0, 2, 1, 3, 4, 2, 5, 6, 8};
  Ctx ctx({}, MatmulPrecision::storage, 2);
  Array rows = integers(row), positions = integers(position), table = integers({5, 1, 3, 4, -1, -1});
  const auto T = static_cast<std::int64_t>(row.size());
  for (const DType d : {DType::f32, DType::bf16})
    for (const std::int64_t window : {0, 5}) {
      Array q = random(d, {T, Hq, D}, 1), x = random(d, {T, Hkv, D}, 2);
      Array whole(d, {2, 12, Hkv, D}), paged(d, {6, 4, Hkv, D}), y(d, {T, Hq, D}), y_paged(d, {T, Hq, D});
      const auto attend = [&](Tensor out, Tensor cache, ConstTensor blocks) {
        ops::cache_append(ctx, {.cache = cache, .x = x, .rows = rows, .positions = positions, .blocks = blocks});
        ops::cached_attention(ctx, {.y = out,
                                    .q = q,
                                    .keys = cache,
                                    .values = cache,
                                    .rows = rows,
                                    .positions = positions,
                                    .blocks = blocks,
                                    .window = window,
                                    .scale = 0.3});
      };
      attend(y, whole, {});
      attend(y_paged, paged, table.tensor().reshaped({2, 3}));
      EXPECT_EQ(y.bytes(), y_paged.bytes()) << name_of(d) << " " << window;
    }
}

TEST(CachedAttention, RefusesPlacesOutsideTheBlocks) {
  Ctx ctx;
  Array cache(DType::f32, {2, 4, 1, 8}), x(DType::f32, {1, 1, 8}), table = integers({1, 2});
  const auto append = [&](std::int32_t row, std::int32_t position) {
    Array rows = integers({row}), positions = integers({position});
    ops::cache_append(
        ctx, {.cache = cache, .x = x, .rows = rows, .positions = positions, .blocks = table.tensor().reshaped({1, 2})});
  };
  append(0, 3);
  EXPECT_THROW(append(1, 0), Error);  // no such row
  EXPECT_THROW(append(0, 4), Error);  // block 2 of 2
  EXPECT_THROW(append(0, 8), Error);  // past the end of the table
}

TEST(CachedAttention, RefusesPlacesOutsideTheCache) {
  Ctx ctx;
  Array cache(DType::f32, {2, 4, 1, 8}), x(DType::f32, {1, 1, 8}), row = integers({0}), position = integers({4});
  EXPECT_THROW(ops::cache_append(ctx, {.cache = cache, .x = x, .rows = row, .positions = position}), Error);
}

TEST(Rope, MayWorkInPlace) {
  Ctx ctx;
  Array x = random(DType::f32, {5, 2, 12}, 1), y(DType::f32, {5, 2, 12}), cos = random(DType::f32, {9, 6}, 2);
  Array sin = random(DType::f32, {9, 6}, 3), positions = integers({8, 0, 3, 3, 1});
  ops::rope(ctx, {.q = {.y = y, .x = x}, .cos = cos, .sin = sin, .positions = positions});
  ops::rope(ctx, {.q = {.y = x, .x = x}, .cos = cos, .sin = sin, .positions = positions});
  EXPECT_EQ(x.bytes(), y.bytes());
}

TEST(Rope, RefusesPositionsOutsideTheTables) {
  Ctx ctx;
  Array x = random(DType::f32, {1, 1, 4}, 1), cos = random(DType::f32, {3, 2}, 2), positions = integers({3});
  EXPECT_THROW(ops::rope(ctx, {.q = {.y = x, .x = x}, .cos = cos, .sin = cos, .positions = positions}), Error);
}

TEST(Rows, OutsideTheTableAreRefused) {
  Ctx ctx;
  Array table = random(DType::f32, {3, 4}, 1), y(DType::f32, {1, 4});
  for (const std::int32_t row : {3, -2}) {
    Array rows = integers({row});
    EXPECT_THROW(ops::gather_rows(ctx, {.y = y, .x = table, .rows = rows}), Error) << row;
    EXPECT_THROW(ops::scatter_rows(ctx, {.y = store(table), .x = y, .rows = rows}), Error) << row;
  }
}

}  // namespace
}  // namespace qtrain
