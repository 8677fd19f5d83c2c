#include "kernels/adapter_grads.h"

#include <numeric>

#include "tests/kernels/adapter_grads_cases.h"
#include "tests/kernels/each_type.h"

namespace qtrain::testing {
namespace {

TEST(AdapterGrads, AreSumsOverOutputsAndTokens) {
  in_each_type({DType::f64, DType::f32}, computes_adapter_grads);
}

TEST(AdapterGrads, RefusesWhatDoesNotFit) {
  Ctx ctx;
  Array dy(DType::f32, {4, 16}), u(DType::f32, {4, 8}), du(DType::f32, {4, 8}), b(DType::f32, {16, 8}),
      other(DType::f32, {5, 8}), db(DType::f32, {16, 8});
  const auto compute = [&](const ops::AdapterGrads::Layer& l) { ops::adapter_grads(ctx, {.layers = {l}}); };
  EXPECT_NO_THROW(compute({.dy = dy, .b = b, .u = u, .du = du, .db = store(db)}));
  EXPECT_THROW(compute({.dy = dy, .b = b, .u = other, .du = other, .db = store(db)}), Error);
  EXPECT_THROW(compute({.dy = dy, .b = other, .u = u, .du = du, .db = store(db)}), Error);
  EXPECT_THROW(compute({.dy = dy, .b = b, .u = u, .du = du, .db = store(other)}), Error);
  EXPECT_THROW(compute({.dy = dy, .b = b, .u = u, .du = du, .db = store(db), .copy = dy}), Error);
}

// The last launch has fewer tokens than the others, and would take more memory with blocks of its own width.
TEST(AdapterGrads, HaveSumsThatFitIntoTheMemoryInEachLaunch) {
  const std::vector<std::vector<std::int64_t>> layers{{8},          {1024},
                                                      {2560},       {4096},
                                                      {8192},       {9216},
                                                      {16384},      {128256},
                                                      {9728, 9728}, {14336, 14336},
                                                      {4864, 4864}, {4096, 1024, 1024},
                                                      {8192, 1024}, {5120, 1024, 1024}};
  for (const auto& outputs : layers)
    for (const std::size_t memory : {Ctx::kScratchBytes, Ctx::kScratchBytes / 4})
      for (std::int64_t tokens = 1; tokens < 70'000; tokens += tokens < 700 ? 1 : 61) {
        const auto grid = ops::AdapterGrid::of(tokens, outputs, memory);
        if (grid.tokens == 0) {  // the sums of dB alone do not fit
          ASSERT_GT(std::accumulate(outputs.begin(), outputs.end(), std::int64_t{0}) * 16 * 4 + 64 * 16 * 4,
                    static_cast<std::int64_t>(memory));
          break;
        }
        ASSERT_LE(grid.rows, ops::AdapterGrid::kMaxBlockRows);
        ASSERT_EQ(grid.tokens % ops::AdapterGrid::kTileRows + grid.rows % ops::AdapterGrid::kTileRows, 0);
        const std::int64_t launches = grid.launches(tokens), last = tokens - (launches - 1) * grid.tokens;
        ASSERT_GT(last, 0);
        ASSERT_LE(grid.bytes(std::min(grid.tokens, tokens), outputs), memory) << outputs[0] << " of " << tokens;
        ASSERT_LE(grid.bytes(last, outputs), memory) << outputs[0] << " of " << tokens;
      }
  EXPECT_EQ(ops::AdapterGrid::of(20'480, layers[8], Ctx::kScratchBytes).columns, 512);
  EXPECT_EQ(ops::AdapterGrid::of(16'384, layers[9], Ctx::kScratchBytes).launches(16'384), 7);
  EXPECT_EQ(ops::AdapterGrid::of(64, layers[3], 4096).tokens, 0);
}

}  // namespace
}  // namespace qtrain::testing
