#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/stage.h"

namespace qtrain {

/// What the backward pass computes again instead of keeping it.
struct RecomputePolicy {
  SlotSet drop;            ///< in every block
  std::int64_t group = 1;  ///< only the first of so many blocks keeps its input
};
/// By name: "none", "selective" (norms and activations), "block" (all but the input of each block), "blocks:N" (all but
/// the input of every N-th block, N >= 2). Nothing for any other name.
std::optional<RecomputePolicy> recompute_policy(std::string_view name);

/// The names of policies worth having in a model of so many layers, the fastest first and the smallest last.
std::vector<std::string> recompute_policies(std::int64_t layers);

}  // namespace qtrain
