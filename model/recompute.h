#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/input_offload.h"
#include "model/stage.h"

namespace qtrain {

/// What the backward pass computes again instead of keeping it.
struct RecomputePolicy {
  SlotSet drop;            ///< in every block
  std::int64_t group = 1;  ///< only the first of so many blocks keeps its input

  /// Whether inputs of blocks are all that is kept.
  bool whole_blocks() const { return drop.has(Slot::att); }
};
/// By name: "none", "selective" (norms and activations), "block" (all but the input of each block), "blocks:N" (all but
/// the input of every N-th block, N >= 2). Nothing for any other name.
std::optional<RecomputePolicy> recompute_policy(std::string_view name);

/// How a model comes to the activations that its backward pass reads.
struct RecomputeChoice {
  std::string policy = "none";
  BlockInputs inputs = BlockInputs::device;  ///< on the host only with policies that keep nothing else
};

/// The names of policies worth having in a model of so many layers, the fastest first and the smallest last.
std::vector<std::string> recompute_policies(std::int64_t layers);

}  // namespace qtrain
