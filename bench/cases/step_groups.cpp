#include "bench/cases/step_groups.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace qtrain::bench {
namespace {

constexpr std::string_view kGemm = "gemm", kAdapter = "adapter gemms", kElementwise = "other element-wise";

/// Substrings of names and their groups; the first match counts.
constexpr auto kParts = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"dequantize", "dequantize"},
    {"adapter_", kAdapter},
    {"gemm", kGemm},
    {"attention_", "attention backward"},
    {"attention", "attention forward"},
    {"rope_grad", "rope backward"},
    {"cross_entropy", "cross-entropy"},
    {"adam", "update"},
    {"adafactor", "update"},
    {"lion", "update"},
    {"muon", "update"},
    {"newton_schulz", "update"},
    {"sgd", "update"},
    {"clip", "update"},
    {"squares", "update"},
    {"quantize", "update"},
    {"copy", "copies and fills"},
    {"fill", "copies and fills"},
});

/// The smallest number in "16384x48x1024 bfloat16".
std::int64_t smallest_size(std::string_view detail) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const char* at = detail.data();
  const char* const end = at + detail.size();
  while (at != end) {
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc()) break;
    least = std::min(least, size);
    at = next != end && *next == 'x' ? next + 1 : end;
  }
  return least;
}

}  // namespace

const std::vector<std::string_view>& step_groups() {
  static const std::vector<std::string_view> kAll{kGemm,
                                                  kAdapter,
                                                  "dequantize",
                                                  "attention forward",
                                                  "attention backward",
                                                  "rope backward",
                                                  kElementwise,
                                                  "cross-entropy",
                                                  "update",
                                                  "copies and fills",
                                                  kGaps};
  return kAll;
}

std::string_view step_group(std::string_view name, std::string_view detail, std::int64_t adapter_rank) {
  constexpr std::int64_t kJoined = 3;  // the adapters of q, k and v share one GEMM
  const auto part =
      std::ranges::find_if(kParts, [&](const auto& p) { return name.find(p.first) != std::string_view::npos; });
  if (part == kParts.end()) return kElementwise;
  const bool small = adapter_rank > 0 && !detail.empty() && smallest_size(detail) <= kJoined * adapter_rank;
  return part->second == kGemm && small ? kAdapter : part->second;
}

}  // namespace qtrain::bench
