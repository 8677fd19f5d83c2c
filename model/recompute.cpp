#include "model/recompute.h"

#include <charconv>

namespace qtrain {
namespace {

using enum Slot;

struct Named {
  std::string_view name;
  SlotSet drop;
};
// What each policy gives up; everything else follows from the table of stages.
constexpr Named kPolicies[] = {
    {"none", {}},
    {"selective", {norm1, norm2, act, q, k}},
    {"block", kAllSlots - SlotSet{x, out}},
};
constexpr std::string_view kBlocks = "blocks:";

}  // namespace

std::optional<RecomputePolicy> recompute_policy(std::string_view name) {
  for (const Named& p : kPolicies)
    if (p.name == name) return RecomputePolicy{.drop = p.drop};
  if (!name.starts_with(kBlocks)) return {};
  const std::string_view number = name.substr(kBlocks.size());
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (error != std::errc() || end != number.data() + number.size() || n < 2) return {};
  return RecomputePolicy{.drop = recompute_policy("block")->drop, .group = n};
}

std::vector<std::string> recompute_policies(std::int64_t layers) {
  std::vector<std::string> names;
  for (const Named& p : kPolicies) names.emplace_back(p.name);
  // layers / N + N inputs are kept: larger groups than the square root of layers save nothing.
  for (std::int64_t n = 2; n * n <= 2 * layers; n *= 2) names.push_back(std::string(kBlocks) + std::to_string(n));
  return names;
}

}  // namespace qtrain
