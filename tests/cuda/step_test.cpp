// A training step on the CUDA device: padded batches, and updates that the device skips.
#include <fmt/format.h>

#include <array>

#include "kernels/attention.h"
#include "kernels/clip.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {
namespace {

/// A batch of `tokens`, of which those from `first_query` on are queries. Documents end at boundaries[1...].
struct FilledSizes {
  std::int64_t tokens;
  std::vector<std::int32_t> boundaries;
  std::int64_t heads = 2, width = 64, first_query = 0;
  bool memory = false;  ///< whether the gradients get memory for sums
};

/// y, lse, dq, dk and dv as bytes, for the tokens of documents and for the padding after them.
struct AttentionBytes {
  std::vector<std::byte> used, unused;

  /// Adds the rows of so many tokens, of which those from `end` on are padding.
  void add(const std::vector<std::byte>& rows, std::int64_t tokens, std::int64_t end) {
    const auto border = rows.begin() + end * (static_cast<std::int64_t>(rows.size()) / tokens);
    used.insert(used.end(), rows.begin(), border);
    unused.insert(unused.end(), border, rows.end());
  }
};

AttentionBytes attention(DType d, const FilledSizes& n) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const std::int64_t T = n.tokens, rows = T - n.first_query;
  const Shape wide{T, n.heads, n.width}, narrow{T, 1, n.width}, queries{rows, n.heads, n.width};
  Array q = random(d, wide, 1), k = random(d, narrow, 2), v = random(d, narrow, 3), dy = random(d, wide, 4);
  Array y(d, queries), dq(d, queries), dk(d, narrow), dv(d, narrow), lse(DType::f32, {n.heads, rows});
  Array memory(DType::f32,
               {n.heads * static_cast<std::int64_t>(ops::attention_sum_bytes(rows, n.width) / sizeof(float))});
  Array cu = integers(n.boundaries);
  const double scale = 0.125;
  const auto of = [&](Array& a) { return a.tensor().slice(n.first_query, rows); };
  ops::attention(
      ctx,
      {.y = y, .lse = lse, .q = of(q), .k = k, .v = v, .cu_seqlens = cu, .scale = scale, .first_query = n.first_query});
  ops::attention_grad(ctx, {.dq = store(dq),
                            .dk = store(dk),
                            .dv = store(dv),
                            .dy = of(dy),
                            .y = y,
                            .q = of(q),
                            .k = k,
                            .v = v,
                            .lse = lse,
                            .cu_seqlens = cu,
                            .scale = scale,
                            .first_query = n.first_query,
                            .memory = n.memory ? memory.tensor() : Tensor{}});
  ctx.synchronize();
  AttentionBytes out;
  const std::int64_t end = n.boundaries.back();
  for (const Array* a : {&y, &dq}) out.add(a->bytes(), rows, end - n.first_query);
  for (const Array* a : {&dk, &dv}) out.add(a->bytes(), T, end);
  for (std::int64_t h = 0; h < n.heads; ++h) {
    const auto row = lse.bytes().begin() + h * rows * 4;
    out.add({row, row + rows * 4}, rows, end - n.first_query);
  }
  return out;
}

void expect_same_but_padding(DType d, FilledSizes filled, FilledSizes exact) {
  for (const bool memory : {false, true}) {
    filled.memory = exact.memory = memory;
    const AttentionBytes got = attention(d, filled), want = attention(d, exact);
    const std::string of = fmt::format("{} {} tokens of width {}, {} memory", name_of(d), filled.tokens, filled.width,
                                       memory ? "with" : "without");
    EXPECT_TRUE(got.used == want.used) << of;
    EXPECT_EQ(got.unused, std::vector<std::byte>(got.unused.size())) << of;
  }
}

// random() depends on the index only, so a longer batch begins with the values of a shorter one.
TEST(FilledBatch, DocumentsWithoutTokensAndTokensOfNoDocumentChangeNoBits) {
  for (const DType d : {DType::f32, DType::bf16})
    for (const FilledSizes& n :
         {FilledSizes{77, {0, 1, 14, 77, 77, 77}}, {96, {0, 1, 14, 77}}, {120, {0, 1, 14, 77, 77}}})
      expect_same_but_padding(d, n, {77, {0, 1, 14, 77}});
}

// With more tiles of queries, of all heads, than multiprocessors. Tiles have 192 queries of width 64 and 128 of width
// 128.
TEST(FilledBatch, ATileOfOnePaddingTokenChangesNoBits) {
  for (const auto& [width, tokens, first] :
       {std::array<std::int32_t, 3>{64, 193, 0}, {64, 400, 15}, {128, 129, 0}, {128, 300, 43}}) {
    const std::vector<std::int32_t> boundaries{0, tokens / 3, tokens - 1};
    expect_same_but_padding(DType::bf16, {tokens, boundaries, 4, width, first},
                            {tokens - 1, boundaries, 4, width, first});
  }
}

// Documents begin with tiles of their own, also the tokens behind them.
TEST(FilledBatch, PaddingAfterTilesOfDocumentsChangesNoBits) {
  for (const std::int32_t width : {64, 128})
    for (const std::int32_t tokens : {257, 300, 520})
      expect_same_but_padding(DType::bf16, {tokens, {0, 100, 201, 201, 201}, 2, width}, {201, {0, 100, 201}, 2, width});
}

TEST(Clip, HasTheBitsOfTheProcessor) {
  const double inf = HUGE_VAL;
  for (const double loss : {1.5, inf, -inf, inf - inf})
    for (const double squares : {0.0, 0.3, 17.3, 1e80, inf, inf - inf})
      for (const double max_norm : {0.0, 1.0})
        for (const double scale : {1.0, 65536.0}) {
          const auto run = [&](Device device) {
            Ctx ctx(device, MatmulPrecision::storage, 1);
            Array factor = scalars({-1, -1}), sums = scalars({loss, squares}), limits = scalars({max_norm, scale});
            ops::clip(ctx, {.factor = factor, .sums = sums, .limits = limits});
            ctx.synchronize();
            return factor.values();
          };
          const std::vector<double> here = run({});
          const OnDevice device;
          const std::vector<double> there = run(kCuda);
          EXPECT_EQ(there[1], here[1]) << loss << " " << squares;
          if (std::isfinite(here[0])) {
            EXPECT_EQ(there[0], here[0]) << squares << " " << max_norm << " " << scale;
          }
        }
}

}  // namespace
}  // namespace qtrain::testing
