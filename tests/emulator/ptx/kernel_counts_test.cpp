#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "bench/cases/measure.h"
#include "core/os/file.h"
#include "emulator/device.h"
#include "tests/cuda/schedules.h"
#include "tests/emulator/ptx/count_table.h"
#include "tests/emulator/ptx/counted_cases.h"
#include "tests/kernels/op_run.h"

/// Counts of what kernels execute when nvcc compiles them, compared with what they promise and with a baseline.
/// scripts/ptx_tests.py compiles the kernels and runs these tests.
namespace qtrain::testing {
namespace {

using bench::Case;
using emulation::ptx::CountedLaunch;
using emulation::ptx::Counting;
using emulation::ptx::Kind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  std::vector<CountedLaunch> launches_of(const Case& c) { return launches_of(ctx_, c); }
  static std::vector<CountedLaunch> launches_of(Ctx& ctx, const Case& c) {
    Counting counting;
    bench::median_seconds(ctx, c, {.seconds = 0, .rotated = 0});  // runs it once
    return counting.take();
  }
  /// With the kernels for a device of another compute capability.
  static std::vector<CountedLaunch> launches_with(int capability, const Case& c) {
    const int before = std::exchange(emulation::settings().capability, capability);
    Ctx ctx({DeviceKind::cuda, 0}, MatmulPrecision::bf16, 1);
    std::vector<CountedLaunch> launches = launches_of(ctx, c);
    emulation::settings().capability = before;
    return launches;
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
    for (const Case& c : all_counted_cases()) {
      add(c.name, launches_of(c));
      if (c.name.starts_with("attention") && c.name.find("sink") == c.name.npos)
        add(c.name + " sm_80", launches_with(80, c));
    }
    for (const auto& [name, dtype] : kCountedOps)
      for (const OpCase* op : op_cases())
        if (op->name == name) add(fmt::format("{} {}", name, name_of(dtype)), launches_of(*op, dtype));
    return table;
  }

 private:
  Ctx ctx_{{DeviceKind::cuda, 0}, MatmulPrecision::bf16, 1};
};

// Warpgroups of compute capability 9.0 read their operands from shared memory without ldmatrix.
TEST_F(KernelCounts, AttentionOnTensorCoresHasNoBankConflicts) {
  for (const int capability : {80, 90}) {
    const int before = std::exchange(emulation::settings().capability, capability);
    Ctx ctx({DeviceKind::cuda, 0}, MatmulPrecision::bf16, 1);
    for (const std::int64_t width : {64, 96, 128, 256}) {
      const bool warpgroups = capability == 90 && (width == 64 || width == 128);
      std::string kernels;
      for (const Case& c : attention_of(width))
        for (const CountedLaunch& launch : launches_of(ctx, c)) {
          if (launch.counts.of(Kind::mma) == 0) continue;
          kernels += launch.kernel + " ";
          EXPECT_EQ(launch.counts.of(Kind::load_matrix) > 0, !warpgroups) << launch.kernel;
          EXPECT_EQ(launch.counts.conflicts, 0u) << launch.kernel << " of " << launch.counts.wavefronts;
        }
      for (const std::string name : {"attention_", "attention_dq_", "attention_dkdv_"})
        EXPECT_THAT(kernels, HasSubstr(name + (warpgroups ? "warpgroups<Bf16" : "tile<Bf16"))) << width;
      EXPECT_EQ(
          kernels.find(warpgroups ? "attention_grad_warpgroups<Bf16" : "attention_grad_tile<Bf16") != kernels.npos,
          width <= 128)
          << width;
    }
    emulation::settings().capability = before;
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

TEST_F(KernelCounts, AdapterGradientsOnTensorCoresHaveNoBankConflicts) {
  int checked = 0;
  for (const Case& c : all_counted_cases())
    if (c.name.starts_with("adapter_grads/"))
      for (const CountedLaunch& launch : launches_of(c)) {
        checked += launch.counts.of(Kind::mma) > 0 ? 1 : 0;
        EXPECT_EQ(launch.counts.conflicts, 0u) << launch.kernel << " of " << launch.counts.wavefronts;
      }
  EXPECT_EQ(checked, 2);
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
