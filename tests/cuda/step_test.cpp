// A training step on the CUDA device: padded batches, and updates that the device skips.
#include "kernels/attention.h"
#include "kernels/clip.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {
namespace {

constexpr std::int64_t kHeads = 2, kGroups = 1, kWidth = 64;

/// y, dq, dk and dv as bytes, for the first `used` tokens and for the padding after them.
struct AttentionBytes {
  std::vector<std::byte> used, unused;
};

AttentionBytes attention(DType d, std::int64_t T, const std::vector<std::int32_t>& cu) {
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const Shape wide{T, kHeads, kWidth}, narrow{T, kGroups, kWidth};
  Array q = random(d, wide, 1), k = random(d, narrow, 2), v = random(d, narrow, 3), dy = random(d, wide, 4);
  Array y(d, wide), dq(d, wide), dk(d, narrow), dv(d, narrow), lse(DType::f32, {kHeads, T}), borders = integers(cu);
  const double scale = 0.125;
  ops::attention(ctx, {.y = y, .lse = lse, .q = q, .k = k, .v = v, .cu_seqlens = borders, .scale = scale});
  ops::attention_grad(ctx, {.dq = store(dq),
                            .dk = store(dk),
                            .dv = store(dv),
                            .dy = dy,
                            .y = y,
                            .q = q,
                            .k = k,
                            .v = v,
                            .lse = lse,
                            .cu_seqlens = borders,
                            .scale = scale});
  ctx.synchronize();
  AttentionBytes out;
  for (const Array* a : {&y, &dq, &dk, &dv}) {
    const auto row = static_cast<std::ptrdiff_t>(a->bytes().size()) / T;
    const auto border = a->bytes().begin() + cu.back() * row;
    out.used.insert(out.used.end(), a->bytes().begin(), border);
    out.unused.insert(out.unused.end(), border, a->bytes().end());
  }
  return out;
}

// random() depends on the index only, so a longer batch begins with the values of a shorter one.
TEST(FilledBatch, DocumentsWithoutTokensAndTokensOfNoDocumentChangeNoBits) {
  for (const DType d : {DType::f32, DType::bf16}) {
    const AttentionBytes exact = attention(d, 77, {0, 1, 14, 77});
    for (const auto& [T, cu] : {std::pair<std::int64_t, std::vector<std::int32_t>>{77, {0, 1, 14, 77, 77, 77}},
                                {96, {0, 1, 14, 77}},
                                {120, {0, 1, 14, 77, 77}}}) {
      const AttentionBytes filled = attention(d, T, cu);
      EXPECT_EQ(filled.used, exact.used) << name_of(d) << " " << T;
      EXPECT_EQ(filled.unused, std::vector<std::byte>(filled.unused.size())) << name_of(d) << " " << T;
    }
  }
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
