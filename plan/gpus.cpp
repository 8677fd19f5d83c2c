#include "plan/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "config/yaml.h"

namespace qtrain {

/// The text of gpus.yaml, by file name without extension.
const std::map<std::string_view, std::string_view>& gpu_texts();

std::string_view gpu_text(std::string_view name) {
  return gpu_texts().at(name);
}

namespace {

std::vector<GpuModel> read_models() {
  const Json table = parse_yaml(gpu_text("gpus"), "gpus.yaml").value;
  const Json& sources = table.at("sources");
  std::vector<GpuModel> models;
  for (const auto& [name, row] : table.at("gpus").items()) {
    const int capability = static_cast<int>(std::lround(row.at("capability").get<double>() * 10));
    models.push_back({.name = name,
                      .memory_gib = row.at("memory"),
                      .half = row.at("half"),
                      .tf32 = row.at("tf32"),
                      .float32 = row.at("float"),
                      .bandwidth = row.at("bandwidth"),
                      .major = capability / 10,
                      .minor = capability % 10,
                      .nvlink = row.at("nvlink"),
                      .peer = row.at("peer"),
                      .source = sources.at(row.at("source").get<std::string>())});
  }
  return models;
}

/// The words of a name, made of letters and digits, in lower case.
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

// Whether the name has a word that makes it another GPU with other memory.
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
  static const std::vector<GpuModel> kModels = read_models();
  return kModels;
}

double GpuModel::teraflops(MatmulPrecision precision) const {
  switch (precision) {
    case MatmulPrecision::bf16: return has_bf16() ? half : float32;
    case MatmulPrecision::f16: return std::max(half, float32);
    case MatmulPrecision::tf32: return std::max(tf32, float32);
    default: return float32;
  }
}

std::string GpuModel::lacks() const {
  std::vector<std::string_view> what;
  if (half == 0) what.emplace_back("no tensor cores");
  if (!has_bf16()) what.emplace_back("no bfloat16");
  if (tf32 == 0 && half > 0) what.emplace_back("no TF32");
  return fmt::format("{}", fmt::join(what, ", "));
}

void require_kernels(const GpuModel& gpu) {
  if (gpu.has_kernels()) return;
  fail(ErrorKind::usage,
       {.cause = fmt::format("{} has compute capability {}.{} ({}), but the kernels need 7.5 (Turing) or newer",
                             gpu.name, gpu.major, gpu.minor, gpu.lacks()),
        .remedy = "use a newer GPU, or train on the processor (device=cpu)"});
}

const GpuModel* find_gpu(std::string_view name) {
  const std::vector<std::string> asked = words_of(name);
  if (asked.empty()) return nullptr;
  const GpuModel* best = nullptr;
  std::size_t most = 0;
  for (const GpuModel& gpu : gpu_models()) {  // names from the driver are longer: "NVIDIA A100-SXM4-40GB"
    const std::vector<std::string> words = words_of(gpu.name);
    if (!contains_all(asked, words) || is_variant(asked, words) || words.size() <= most) continue;
    best = &gpu;
    most = words.size();
  }
  if (best) return best;
  for (const GpuModel& gpu : gpu_models())  // names that users type are shorter
    if (contains_all(words_of(gpu.name), asked)) return &gpu;
  const auto joined = [](std::string_view words) { return fmt::format("{}", fmt::join(words_of(words), "")); };
  for (const GpuModel& gpu : gpu_models())  // or lack blanks and the words before the number
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
