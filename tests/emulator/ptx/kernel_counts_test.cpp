#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "bench/cases/measure.h"
#include "core/os/file.h"
#include "emulator/device.h"
#include "kernels/grouped_gemm.h"
#include "tests/cuda/schedules.h"
#include "tests/emulator/ptx/count_table.h"
#include "tests/kernels/op_run.h"

/// What kernels execute as nvcc compiled them: what they promise, and a baseline. Run by scripts/ptx_tests.py, which
/// compiles them.
namespace qtrain::testing {
namespace {

using bench::Argument;
using bench::Case;
using bench::Contents;
using bench::Operand;
using emulation::ptx::CountedLaunch;
using emulation::ptx::Counting;
using emulation::ptx::Kind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Operand half(const Shape& shape) {
  return {shape, DType::bf16};
}
Operand places(std::vector<double> values) {
  return {{static_cast<std::int64_t>(values.size())}, DType::i32, Contents::given, 0, std::move(values)};
}

/// The forward and the backward pass for two query heads of a key head, over a long document and a short one.
std::vector<Case> attention_of(std::int64_t width) {
  constexpr std::int64_t kTokens = 150;
  const Operand q = half({kTokens, 2, width}), k = half({kTokens, 1, width}), cu = places({0, 130, kTokens});
  const Operand lse{{2, kTokens}, DType::f32, Contents::positive};
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  return {{.name = "attention", .operands = {q, lse, q, k, k, cu}, .prepare = bench::op("attention", {scale})},
          {.name = "attention_grad",
           .operands = {q, k, k, q, q, q, k, k, lse, cu},
           .prepare = bench::op("attention_grad", {scale})}};
}

/// The three GEMMs of experts with 70, 0, and 58 tokens: y = x W^T, dx = dy W, dW = dy^T x.
std::vector<Case> grouped_gemms() {
  constexpr std::int64_t kRows = 128, kIn = 96, kOut = 160, kExperts = 3;
  const Operand x = half({kRows, kIn}), y = half({kRows, kOut}), w = half({kExperts, kOut, kIn}),
                offsets = places({0, 70, 70, kRows});
  const auto forward = [](Ctx& ctx, std::span<const Argument> a) {
    ops::grouped_gemm(ctx, {.c = store(a[0].tensor),
                            .a = a[1].tensor,
                            .b = a[2].tensor,
                            .offsets = a[3].tensor,
                            .transpose_b = ops::Transpose::yes});
  };
  const auto dx = [](Ctx& ctx, std::span<const Argument> a) {
    ops::grouped_gemm(ctx, {.c = store(a[0].tensor), .a = a[1].tensor, .b = a[2].tensor, .offsets = a[3].tensor});
  };
  const auto dw = [](Ctx& ctx, std::span<const Argument> a) {
    ops::grouped_gemm_grad(ctx, {.c = store(a[0].tensor), .a = a[1].tensor, .b = a[2].tensor, .offsets = a[3].tensor});
  };
  const std::string name = fmt::format("grouped_gemm/{}x{}x{}", kRows, kOut, kIn);
  return {{.name = name + "/forward", .operands = {y, x, w, offsets}, .prepare = [=] { return forward; }},
          {.name = name + "/dx", .operands = {x, y, w, offsets}, .prepare = [=] { return dx; }},
          {.name = name + "/dw", .operands = {w, y, x, offsets}, .prepare = [=] { return dw; }}};
}

/// Adafactor for a matrix; the small sizes of `qtrain bench` have one of 8 columns.
Case adafactor_of(const Shape& matrix) {
  const Operand x{matrix, DType::f32}, row{{matrix[0]}, DType::f32, Contents::positive},
      column{{matrix[1]}, DType::f32, Contents::positive},
      hyperparameters{{3}, DType::f64, Contents::given, 0, {1e-6, 0.1, 0.001}},
      factor{{2}, DType::f64, Contents::given, 0, {1.0, 1.0}};
  return {.name = fmt::format("adafactor/{}x{}", matrix[0], matrix[1]),
          .operands = {x, row, column, x, hyperparameters, factor},
          .prepare = bench::op("adafactor")};
}

/// The cases of `qtrain bench` in sizes that take milliseconds, without those of the GEMM library and of the host.
std::vector<Case> all_counted_cases() {
  const bench::Sizes sizes{.dtype = DType::bf16,
                           .tokens = 32,
                           .copied = 65536,
                           .gemm = 32,
                           .vocabulary_rows = 2,
                           .parameters = 65536,
                           .models = {{"half of qwen3-0.6b", 512, 1536, 16, 8, 128, 75968}},
                           .lengths = {128}};
  std::vector<Case> cases = bench::all_cases(sizes);
  std::erase_if(cases, [](const Case& c) { return c.name.starts_with("gemm/") || c.name.starts_with("adafactor/"); });
  cases.insert(cases.begin(), bench::copy_case(sizes));
  cases.push_back(adafactor_of({64, 1024}));
  for (Case& c : grouped_gemms()) cases.push_back(std::move(c));
  return cases;
}

/// Ops that `qtrain bench` does not have, and the kernels for f32, by their names in tests/kernels.
constexpr std::pair<std::string_view, DType> kCountedOps[] = {
    {"gemm_bias", DType::bf16},
    {"embedding_200x40x1032", DType::bf16},
    {"rope_40x9x64_keys3", DType::bf16},
    {"magnitude_70x576", DType::bf16},
    {"route_6x128x8", DType::bf16},
    {"router_balance_6x128x8", DType::bf16},
    {"dispatch_rows_many_24", DType::bf16},
    {"combine_rows_many_24", DType::bf16},
    {"expert_bias_many_264", DType::bf16},
    {"grouped_gemm_some_empty_136x72_t", DType::f32},
    {"attention_window", DType::f32},
};

class KernelCounts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (emulation::settings().ptx.empty()) GTEST_SKIP() << "needs the PTX of nvcc: scripts/ptx_tests.py";
  }
  std::vector<CountedLaunch> launches_of(const Case& c) {
    Counting counting;
    bench::median_seconds(ctx_, c, {.seconds = 0, .rotated = 0});  // runs it once
    return counting.take();
  }
  /// The forward and the backward pass.
  std::vector<CountedLaunch> launches_of(const OpCase& op, DType dtype) {
    const OnDevice device;
    Counting counting;
    const Pass pass = run(op, dtype, ctx_, Sink::Mode::store);
    ctx_.synchronize();
    return counting.take();
  }
  CountTable all_counts() {
    CountTable table{compiler_of(emulation::settings().ptx)};
    const auto add = [&](const std::string& task, const std::vector<CountedLaunch>& launches) {
      for (CountRow& row : rows_of(task, launches)) table.rows.push_back(std::move(row));
    };
    for (const Case& c : all_counted_cases()) add(c.name, launches_of(c));
    for (const auto& [name, dtype] : kCountedOps)
      for (const OpCase* op : op_cases())
        if (op->name == name) add(fmt::format("{} {}", name, name_of(dtype)), launches_of(*op, dtype));
    return table;
  }

 private:
  Ctx ctx_{{DeviceKind::cuda, 0}, MatmulPrecision::bf16, 1};
};

TEST_F(KernelCounts, AttentionOnTensorCoresHasNoBankConflicts) {
  for (const std::int64_t width : {64, 96, 128, 256}) {
    std::string kernels;
    for (const Case& c : attention_of(width))
      for (const CountedLaunch& launch : launches_of(c)) {
        if (launch.counts.of(Kind::mma) == 0) continue;
        kernels += launch.kernel + " ";
        EXPECT_GT(launch.counts.of(Kind::load_matrix), 0u) << launch.kernel;
        EXPECT_EQ(launch.counts.conflicts, 0u) << launch.kernel << " of " << launch.counts.wavefronts;
      }
    for (const char* name : {"attention_tile<Bf16", "attention_dq_tile<Bf16", "attention_dkdv_tile<Bf16"})
      EXPECT_THAT(kernels, HasSubstr(name)) << width;
  }
}

TEST_F(KernelCounts, GroupedGemmOnTensorCoresHasNoBankConflicts) {
  for (const Case& c : grouped_gemms()) {
    const std::vector<CountedLaunch> launches = launches_of(c);
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_THAT(launches[0].kernel, HasSubstr("_mma<Bf16"));
    EXPECT_GT(launches[0].counts.of(Kind::mma), 0u);
    EXPECT_EQ(launches[0].counts.conflicts, 0u) << c.name << " of " << launches[0].counts.wavefronts;
  }
}

// Rows that packs of 16 bytes divide: every sector that is touched is used as a whole.
TEST_F(KernelCounts, StreamingKernelsTouchNoMoreSectorsThanTheirBytesFill) {
  int checked = 0;
  for (const Case& c : all_counted_cases()) {
    const std::string op = c.name.substr(0, c.name.find('/'));
    for (const char* streaming : {"copy", "add", "dropout", "swiglu", "swiglu_grad", "adamw", "adamw_bf16", "lion",
                                  "sgd_momentum", "muon_momentum", "muon_apply"})
      if (op == streaming)
        for (const CountedLaunch& launch : launches_of(c)) {
          ++checked;
          EXPECT_GT(launch.counts.sectors, 0u) << launch.kernel;
          EXPECT_EQ(launch.counts.excess_sectors, 0u)
              << c.name << ", " << launch.kernel << " of " << launch.counts.sectors;
        }
  }
  EXPECT_GE(checked, 11);
}

TEST_F(KernelCounts, DoNotGrowBeyondTheBaseline) {
  const std::filesystem::path root = QTRAIN_SOURCE_DIR, file = root / "bench/baselines/cuda_counts.csv",
                              page = root / "docs/kernels/counts.md";
  if (std::getenv("QTRAIN_WRITE_COUNTS")) {
    const CountTable now = all_counts();
    write_file(file, csv_of(now));
    write_file(page, with_table(read_text(page), now));
    return;
  }
  const CountTable baseline = table_of(read_text(file));
  if (const std::string compiler = compiler_of(emulation::settings().ptx); compiler != baseline.compiler)
    GTEST_SKIP() << "this is the PTX of " << compiler << ", the baseline is of " << baseline.compiler;
  EXPECT_THAT(growth(baseline, all_counts()), IsEmpty()) << "if it has to be: scripts/ptx_tests.py --write_counts";
}

}  // namespace
}  // namespace qtrain::testing
