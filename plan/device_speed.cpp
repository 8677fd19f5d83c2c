#include "plan/device_speed.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/device.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "report/metrics.h"

namespace qtrain {
namespace {

constexpr double kGiga = 1e9;

/// Fractions of a GPU's peak that training reaches for models of one width. These are not measured.
struct PeakShares {
  std::int64_t width;
  Ranged<double> flops;
};
// For GPUs and types whose kernels have not been counted. Small models reach less, because they move more bytes per
// GEMM FLOP for norms and rotary embeddings.
constexpr PeakShares kNarrow{.width = 2048, .flops = {.slow = 0.29, .usual = 0.30, .fast = 0.47}};
constexpr PeakShares kWide{.width = 4096, .flops = {.slow = 0.50, .usual = 0.55, .fast = 0.62}};
/// A range around the usual shares of kernels. In the slow case, twice as much of the other units' time is added; in
/// the fast case, none of it.
Ranged<KernelShares> kernel_range(const KernelShares& usual) {
  KernelShares slow = usual, fast = usual;
  for (double KernelShares::*share : {&KernelShares::gemm, &KernelShares::copy, &KernelShares::skinny}) {
    slow.*share *= 0.85;
    fast.*share = std::min(1.1 * usual.*share, 1.0);
  }
  slow.overlap = 2 * usual.overlap;
  fast.overlap = 0;
  slow.gap_seconds = 1.5 * usual.gap_seconds;
  return {slow, usual, fast};
}

// Fractions of the bandwidth: 1/2 is assumed for GEMMs with an adapter's few columns, copies reach 4/5.
constexpr Ranged<double> kBandwidth{.slow = 0.5, .usual = 0.65, .fast = 0.8};
// Fraction of a step on a processor that GEMMs take; 4/5 if there is little other work.
constexpr Ranged<double> kProcessor{.slow = 0.5, .usual = 0.6, .fast = 0.8};

Tensor matrix(Ctx& ctx, const DeviceMemory& memory, Shape shape) {
  const Tensor t{memory.data(), DType::f32, std::move(shape), {}};
  ops::fill(ctx, {.y = t, .value = 0.5});
  return t;
}

template <class F>
double least_seconds(F&& work) {
  constexpr int kRuns = 4;
  double least = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    Stopwatch watch;
    work();
    least = std::min(least, watch.seconds());
  }
  return least;
}

double measured_flops(Ctx& ctx) {
  constexpr std::int64_t kRows = 512, kWidth = 1024;
  const auto memory_of = [](std::int64_t rows) {
    return DeviceMemory(Device{}, static_cast<std::size_t>(rows * kWidth) * sizeof(float), "a measured GEMM");
  };
  const DeviceMemory a_memory = memory_of(kRows), b_memory = memory_of(kWidth), c_memory = memory_of(kRows);
  const Tensor a = matrix(ctx, a_memory, {kRows, kWidth}), b = matrix(ctx, b_memory, {kWidth, kWidth}),
               c = matrix(ctx, c_memory, {kRows, kWidth});
  const double least =
      least_seconds([&] { ops::gemm(ctx, {.c = store(c), .a = a, .b = b, .transpose_b = ops::Transpose::yes}); });
  return 2.0 * kRows * kWidth * kWidth / least;
}

// Bandwidth of adding two vectors that are too large for the caches: two reads and one write.
double measured_bandwidth(Ctx& ctx) {
  constexpr std::int64_t kElements = 8 << 20;
  const std::size_t bytes = kElements * sizeof(float);
  const DeviceMemory x_memory(Device{}, bytes, "a measured sum"), y_memory(Device{}, bytes, "a measured sum");
  const Tensor x = matrix(ctx, x_memory, {kElements}), y = matrix(ctx, y_memory, {kElements});
  return 3 * static_cast<double>(bytes) / least_seconds([&] { ops::add(ctx, {.y = y, .a = x, .b = y}); });
}

}  // namespace

Ranged<SheetShares> sheet_shares(std::int64_t hidden_size, std::optional<double> mfu) {
  if (mfu) return alike(SheetShares{.flops = *mfu, .bandwidth = kBandwidth.usual});
  const double doublings = std::log2(static_cast<double>(hidden_size) / static_cast<double>(kNarrow.width)),
               between = std::log2(static_cast<double>(kWide.width) / static_cast<double>(kNarrow.width)),
               wide = std::clamp(doublings / between, 0.0, 1.0);
  const Ranged<KernelShares> kernels = kernel_range(kernel_shares(hidden_size));
  const auto share = [&](double Ranged<double>::*which, const KernelShares& by_kernel) {
    return SheetShares{.flops = std::lerp(kNarrow.flops.*which, kWide.flops.*which, wide),
                       .bandwidth = kBandwidth.*which,
                       .kernels = by_kernel};
  };
  return {share(&Ranged<double>::slow, kernels.slow), share(&Ranged<double>::usual, kernels.usual),
          share(&Ranged<double>::fast, kernels.fast)};
}

Ranged<DeviceSpeed> measured_speed(MatmulPrecision matmul, int threads) {
  Ctx ctx({}, matmul, threads);
  const double flops = measured_flops(ctx), bandwidth = measured_bandwidth(ctx);
  return kProcessor.map(
      [&](double share) { return DeviceSpeed{.flops = share * flops, .bandwidth = bandwidth, .loading = {}}; });
}

Ranged<DeviceSpeed> published_speed(const GpuModel& gpu, MatmulPrecision matmul, const Ranged<SheetShares>& shares) {
  const bool half = matmul == MatmulPrecision::bf16 || matmul == MatmulPrecision::f16;
  return shares.map([&](const SheetShares& s) {
    if (const auto attention = s.kernels && half ? attention_seconds(gpu, *s.kernels) : std::nullopt)
      return DeviceSpeed{.flops = gpu.teraflops(matmul) * 1e12 * s.kernels->gemm,
                         .bandwidth = gpu.bandwidth * kGiga * s.kernels->copy,
                         .loading = {},
                         .kernels = KernelSpeed{.attention = *attention,
                                                .skinny = gpu.bandwidth * kGiga * s.kernels->skinny,
                                                .gap_seconds = s.kernels->gap_seconds}};
    return DeviceSpeed{.flops = gpu.teraflops(matmul) * 1e12 * s.flops,
                       .bandwidth = gpu.bandwidth * kGiga * s.bandwidth,
                       .loading = {}};
  });
}

std::optional<Ranged<DeviceSpeed>> speed_here(const TargetDevice& target, const ComputedThere& computed) {
  if (target.device.kind == DeviceKind::cpu) return measured_speed(computed.matmul, computed.threads);
  const GpuModel* gpu = find_gpu(target.name);
  if (!gpu) return {};
  return published_speed(*gpu, computed.matmul, sheet_shares(computed.hidden_size));
}

double loading_speed(const Dataset& rows, std::int64_t micro_batch_size) {
  constexpr double kLongEnough = 0.02;
  const Stopwatch watch;
  std::int64_t tokens = 0;
  for (std::int64_t row = 0; row < rows.size() && watch.seconds() < kLongEnough; row += micro_batch_size) {
    std::vector<std::int64_t> batch(static_cast<std::size_t>(std::min(micro_batch_size, rows.size() - row)));
    std::iota(batch.begin(), batch.end(), row);
    tokens += make_batch(rows, batch).size();
  }
  return static_cast<double>(tokens) / std::max(watch.seconds(), 1e-6);
}

}  // namespace qtrain
