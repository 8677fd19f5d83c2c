#include "train/plan/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

namespace qtrain {
namespace {

// Where one name begins another, the more usual model comes first. Bridges that join two cards are left out.
constexpr auto kModels = std::to_array<GpuModel>({
    {"T4", 14.6, 65, 320, 7, 0, 15.75},
    {"RTX 3060", 11.8, 25.6, 360, 8, 0, 31.5},
    {"RTX 3080", 9.8, 59.5, 760, 8, 0, 31.5},
    {"RTX 3090", 23.7, 71, 936, 8, 0, 31.5},
    {"RTX 4060", 7.6, 30.2, 272, 8, 0, 15.75},
    {"RTX 4060 Ti", 15.6, 44.1, 288, 8, 0, 15.75},
    {"RTX 4070", 11.7, 58.3, 504, 8, 0, 31.5},
    {"RTX 4080", 15.7, 97.5, 717, 8, 0, 31.5},
    {"RTX 4090", 23.6, 165.2, 1008, 8, 0, 31.5},
    {"RTX 5070", 11.5, 61.7, 672, 12, 0, 63},
    {"RTX 5070 Ti", 15.5, 87.9, 896, 12, 0, 63},
    {"RTX 5080", 15.5, 112.6, 960, 12, 0, 63},
    {"RTX 5090", 31.4, 209.5, 1792, 12, 0, 63},
    {"RTX A4000", 15.7, 76.7, 448, 8, 0, 31.5},
    {"RTX A5000", 23.7, 111.1, 768, 8, 0, 31.5},
    {"RTX A6000", 47.5, 154.8, 768, 8, 0, 31.5},
    {"RTX 6000 Ada", 47.5, 364.2, 960, 8, 0, 31.5},
    {"RTX PRO 6000 Blackwell", 95.0, 503.8, 1792, 12, 0, 63},
    {"L4", 22.0, 121, 300, 8, 0, 31.5},
    {"L40S", 44.5, 362, 864, 8, 0, 31.5},
    {"L40", 44.5, 181, 864, 8, 0, 31.5},
    {"A10G", 22.1, 70, 600, 8, 0, 31.5},
    {"A10", 22.1, 125, 600, 8, 0, 31.5},
    {"A30", 23.6, 165, 933, 8, 0, 31.5},
    {"A40", 44.4, 149.7, 696, 8, 0, 31.5},
    {"A100 80GB", 79.2, 312, 2039, 8, 3, 300},
    {"A100 40GB", 39.4, 312, 1555, 8, 3, 300},
    {"A100 PCIe 80GB", 79.2, 312, 1935, 8, 0, 31.5},
    {"A100 PCIe 40GB", 39.4, 312, 1555, 8, 0, 31.5},
    {"H100 80GB", 79.1, 989.4, 3350, 9, 4, 450},
    {"H100 PCIe", 79.1, 756, 2000, 9, 0, 63},
    {"H100 NVL", 93.1, 835, 3938, 9, 0, 63},
    {"H200", 139.8, 989.4, 4800, 9, 4, 450},
    {"H200 NVL", 139.8, 835.5, 4800, 9, 0, 63},
    {"B200", 178.3, 2250, 7700, 10, 5, 900},
});

/// Lower-case words of letters and digits.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : name) {
    const bool part = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (part && !inside) words.emplace_back();
    if (part) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    inside = part;
  }
  return words;
}

bool contains_all(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  return std::all_of(some.begin(), some.end(),
                     [&](const std::string& w) { return std::find(all.begin(), all.end(), w) != all.end(); });
}

// Words that make it another card with another memory.
bool is_variant(const std::vector<std::string>& asked, const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 3> kVariants{"ti", "super", "laptop"};
  const auto has = [](const std::vector<std::string>& all, std::string_view word) {
    return std::find(all.begin(), all.end(), word) != all.end();
  };
  return std::any_of(kVariants.begin(), kVariants.end(),
                     [&](std::string_view v) { return has(asked, v) && !has(words, v); });
}

}  // namespace

std::span<const GpuModel> gpu_models() {
  return kModels;
}

const GpuModel* find_gpu(std::string_view name) {
  const std::vector<std::string> asked = words_of(name);
  if (asked.empty()) return nullptr;
  const GpuModel* best = nullptr;
  std::size_t most = 0;
  for (const GpuModel& gpu : kModels) {  // the driver says more than the name: "NVIDIA A100-SXM4-40GB"
    const std::vector<std::string> words = words_of(gpu.name);
    if (!contains_all(asked, words) || is_variant(asked, words) || words.size() <= most) continue;
    best = &gpu;
    most = words.size();
  }
  if (best) return best;
  for (const GpuModel& gpu : kModels)  // people say less
    if (contains_all(words_of(gpu.name), asked)) return &gpu;
  const auto joined = [](std::string_view words) { return fmt::format("{}", fmt::join(words_of(words), "")); };
  for (const GpuModel& gpu : kModels)  // or leave out blanks, and the maker's words before the number
    if (joined(name).size() >= 4 && joined(gpu.name).ends_with(joined(name))) return &gpu;
  return nullptr;
}

Interconnect interconnect_of(const GpuModel& gpu, const RankLayout& ranks, std::optional<double> network_gbps) {
  constexpr double kNvlinkShare = 0.8, kPcieShare = 0.75, kNetworkShare = 0.96;
  constexpr double kNvlinkLatency = 3.4e-6, kPcieLatency = 5.7e-6, kNetworkLatency = 14e-6;
  constexpr double kGiga = 1e9, kBits = 8;
  const double usual = gpu.nvlink > 3 ? 400 : gpu.nvlink == 3 ? 200 : 100.0 / ranks.ranks_per_node;
  const bool nvlink = gpu.nvlink > 0;
  return {.inside = {.latency = nvlink ? kNvlinkLatency : kPcieLatency,
                     .bandwidth = gpu.peer * kGiga * (nvlink ? kNvlinkShare : kPcieShare)},
          .between = {.latency = kNetworkLatency,
                      .bandwidth = network_gbps.value_or(usual) * kGiga / kBits * kNetworkShare},
          .ranks_per_node = ranks.ranks_per_node,
          .nodes = ranks.nodes};
}

std::size_t usable_memory(const GpuModel& gpu) {
  constexpr double kContextGib = 0.6;
  return static_cast<std::size_t>((gpu.memory_gib - kContextGib) * (1 << 30));
}

}  // namespace qtrain
