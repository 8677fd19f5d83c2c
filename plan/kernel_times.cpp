#include "plan/kernel_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "config/yaml.h"

namespace qtrain {
namespace {

const Json& kernel_table() {
  static const Json table = parse_yaml(gpu_text("kernel_times"), "kernel_times.yaml").value;
  return table;
}

/// FLOPs of 16-bit GEMMs per cycle of a multiprocessor, from its peak in float32: it has 64 lanes of float32 up to
/// compute capability 8.0, and 128 above. Rounded to a power of two, as the clocks of the two peaks differ a little.
double flops_per_cycle(const GpuModel& gpu) {
  const bool wide = gpu.major > 8 || (gpu.major == 8 && gpu.minor > 0);
  return std::exp2(std::round(std::log2(gpu.half / gpu.float32 * 2 * (wide ? 128 : 64))));
}

/// Whether attention uses wgmma, which needs compute capability 9.0.
bool has_wgmma(const GpuModel& gpu) {
  return gpu.major == 9;
}
/// The share of the peak that attention's products reach. On 10.0, mma.sync reaches little of it.
double tensor_share(const GpuModel& gpu) {
  if (has_wgmma(gpu)) return kernel_table().at("shares").at("wgmma").get<double>();
  return kernel_table().at("mma").at(gpu.major == 10 ? "blackwell" : "others").get<double>();
}

double seconds_of(const Json& pass, const GpuModel& gpu, double overlap) {
  constexpr double kTera = 1e12;
  const double flops = gpu.half * kTera, cycles = flops / flops_per_cycle(gpu);
  const std::array<double, 3> busy{pass.at("instructions").get<double>() / cycles,
                                   pass.at("wavefronts").get<double>() / cycles,
                                   pass.at("operations").get<double>() / (flops * tensor_share(gpu))};
  const double longest = std::ranges::max(busy);
  return longest + overlap * (std::reduce(busy.begin(), busy.end()) - longest);
}

ElementBytes bytes_of_pass(const char* pass, bool normed) {
  const Json& row = kernel_table().at("elements").at(pass);
  return {.width = row.at("width").get<double>(),
          .heads = row.at(normed ? "normed_heads" : "heads").get<double>(),
          .gate = row.at("gate").get<double>()};
}

}  // namespace

KernelShares kernel_shares(std::int64_t hidden_size) {
  const Json& shares = kernel_table().at("shares");
  const Json &narrow = kernel_table().at("gemm").at("narrow"), &wide = kernel_table().at("gemm").at("wide");
  const auto log_width = [](const Json& row) { return std::log2(row.at("width").get<double>()); };
  const double between = std::clamp(
      (std::log2(static_cast<double>(hidden_size)) - log_width(narrow)) / (log_width(wide) - log_width(narrow)), 0.0,
      1.0);
  const auto share = [&](const char* name) { return shares.at(name).get<double>(); };
  return {.gemm = std::lerp(narrow.at("share").get<double>(), wide.at("share").get<double>(), between),
          .copy = share("copy"),
          .skinny = share("skinny"),
          .overlap = share("overlap"),
          .gap_seconds = share("gap_seconds")};
}

std::optional<AttentionSeconds> attention_seconds(const GpuModel& gpu, const KernelShares& shares) {
  if (gpu.major < 8 || gpu.half == 0) return {};
  const Json& attention = kernel_table().at("attention").at(has_wgmma(gpu) ? "wgmma" : "mma");
  return AttentionSeconds{.forward = seconds_of(attention.at("forward"), gpu, shares.overlap),
                          .backward = seconds_of(attention.at("backward"), gpu, shares.overlap)};
}

ElementBytes forward_bytes(bool normed) {
  return bytes_of_pass("forward", normed);
}
ElementBytes backward_bytes(bool normed) {
  return bytes_of_pass("backward", normed);
}

}  // namespace qtrain
