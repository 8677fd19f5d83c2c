// The gradient of the embedding table on the CUDA device, bit for bit: rows are added in the order of the batch.
#include <fmt/format.h>

#include <functional>
#include <map>

#include "kernels/embedding.h"
#include "tests/cuda/schedules.h"

namespace qtrain::testing {
namespace {

constexpr std::int64_t kNoPadding = -1;

struct TokenBatch {
  std::string name;
  std::int64_t count, vocabulary, width;
  std::function<std::int64_t(std::int64_t)> token;
  std::int64_t padding = kNoPadding;

  std::vector<std::int32_t> tokens() const {
    std::vector<std::int32_t> all;
    for (std::int64_t t = 0; t < count; ++t) all.push_back(static_cast<std::int32_t>(token(t)));
    return all;
  }
};

std::vector<TokenBatch> token_batches() {
  const auto mixed = [](std::int64_t t) { return t * t * 37 % 1009 % 61; };
  return {{"one", 1, 1, 8, [](std::int64_t) { return 0; }},
          {"all_equal", 133, 70, 264, [](std::int64_t) { return 64; }},
          {"all_distinct", 130, 130, 40, [](std::int64_t t) { return t * 47 % 130; }},
          {"descending", 97, 5000, 16, [](std::int64_t t) { return 4999 - t * 51; }},
          {"runs_of_a_warp", 96, 3, 8, [](std::int64_t t) { return t / 32; }},
          {"last_row_of_64", 40, 64, 8, [](std::int64_t t) { return t % 2 * 63; }},
          {"mixed", 200, 61, 520, mixed},
          {"odd_width", 200, 61, 67, mixed},
          {"width_of_one", 100, 61, 1, mixed},
          {"padding", 150, 61, 24, mixed, 37},
          {"only_padding", 20, 9, 8, [](std::int64_t) { return 8; }, 8}};
}

constexpr float kScale = 0.375f;

float rounded_to(DType d, float v) {
  return d == DType::bf16 ? static_cast<float>(Bf16(v)) : v;
}

/// Adds the gradient of one micro-batch to `table` in the order that the op promises.
void add_gradient(std::vector<float>& table, DType dtype, const TokenBatch& batch, const Array& dy) {
  std::map<std::int64_t, std::vector<float>> sums;
  const auto width = static_cast<std::size_t>(batch.width);
  const std::vector<double> values = dy.values();
  for (std::int64_t t = 0; t < batch.count; ++t) {
    if (batch.token(t) == batch.padding) continue;
    std::vector<float>& sum = sums.try_emplace(batch.token(t), width, 0.0f).first->second;
    for (std::size_t c = 0; c < width; ++c)
      sum[c] += static_cast<float>(values[static_cast<std::size_t>(t) * width + c]);
  }
  for (const auto& [token, sum] : sums)
    for (std::size_t c = 0; c < width; ++c) {
      float& v = table[static_cast<std::size_t>(token) * width + c];
      v = rounded_to(dtype, v + kScale * sum[c]);
    }
}

struct TableTypes {
  DType table, dy;
};

/// Three micro-batches: the first stores, the others add.
void expect_exact(Ctx& ctx, const TokenBatch& batch, const TableTypes& types) {
  const OnDevice device;
  Array tokens = integers(batch.tokens()), table(types.table, {batch.vocabulary, batch.width});
  std::vector<float> expected(static_cast<std::size_t>(table.size()));
  for (unsigned n = 0; n < 3; ++n) {
    Array dy = random(types.dy, {batch.count, batch.width}, n);
    ops::embedding_grad(ctx, {.dtable = n == 0 ? store(table) : accumulate(table),
                              .dy = dy,
                              .tokens = tokens,
                              .padding = batch.padding,
                              .scale = kScale});
    ctx.synchronize();
    add_gradient(expected, types.table, batch, dy);
  }
  const std::vector<double> got = table.values();
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(static_cast<float>(got[i]), expected[i])
        << batch.name << " " << name_of(types.table) << " " << name_of(types.dy) << " element " << i;
}

TEST(CudaEmbeddingGrad, AddsTheRowsOfATokenInOrder) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const TokenBatch& batch : token_batches())
    for (const TableTypes& types : {TableTypes{DType::f32, DType::bf16}, TableTypes{DType::bf16, DType::bf16},
                                    TableTypes{DType::f32, DType::f32}, TableTypes{DType::bf16, DType::f32}})
      expect_exact(ctx, batch, types);
}

TEST(CudaEmbeddingGrad, DoesNotDependOnTheSchedule) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for_each_schedule([&] {
    for (const TokenBatch& batch : token_batches())
      if (batch.name == "mixed" || batch.name == "runs_of_a_warp") expect_exact(ctx, batch, {DType::f32, DType::bf16});
  });
}

// Ids as large as those of Qwen3, and more tokens than a warp sorts at once, some of which are frequent, as in text.
TEST(CudaEmbeddingGrad, FindsAllTokensOfALargeBatch) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  constexpr std::int64_t kVocabulary = 151'936;
  const auto token = [](std::int64_t t) {
    return t % 20 == 0 ? kVocabulary - 1 : t * t % 99'991 * (1 + t % 3) % kVocabulary;
  };
  expect_exact(ctx, {"large", 16'500, kVocabulary, 8, token}, {DType::f32, DType::bf16});
}

}  // namespace
}  // namespace qtrain::testing
