#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/input_offload.h"
#include "model/layer/layer.h"

namespace qtrain {

/// What the backward pass computes again instead of reading what the forward pass saved.
class RecomputePolicy {
 public:
  enum class Kind : std::uint8_t {
    none,
    selective,  ///< norms, activations of the MLP and the like: cheap for what they take
    block,      ///< everything but the input of a block
  };

  RecomputePolicy() = default;
  explicit RecomputePolicy(Kind kind, std::int64_t group = 1) : kind_(kind), group_(group) {}
  /// By name: "none", "selective", "block", "blocks:N" (all but the input of every N-th block, N >= 2). Nothing for any
  /// other name.
  static std::optional<RecomputePolicy> parse(std::string_view name);
  /// The same; a usage error for any other name.
  static RecomputePolicy named(std::string_view name);
  /// Those worth having in a model of so many layers, the fastest first and the smallest last.
  static std::vector<RecomputePolicy> choices(std::int64_t layers);

  std::string name() const;
  Kind kind() const { return kind_; }
  /// Only the first of so many blocks saves its input.
  std::int64_t group() const { return group_; }
  /// Whether inputs of blocks are all that is saved.
  bool whole_blocks() const { return kind_ == Kind::block; }
  /// The tensors of a layer that are recomputed where a gradient needs them.
  TensorSet recomputed(const Layer& layer) const;

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;

 private:
  Kind kind_ = Kind::none;
  std::int64_t group_ = 1;
};

/// How a model comes to the activations that its backward pass reads.
struct RecomputeChoice {
  RecomputePolicy policy = {};
  BlockInputs inputs = BlockInputs::device;  ///< on the host only with policies that save nothing else
};

/// What a recompute policy (activation checkpointing, Chen et al. 2016; selective: Korthikanti et al. 2022) means for a
/// layer.
struct RecomputePlan {
  TensorSet saved;         ///< tensors with memory of their own in every layer
  std::vector<int> rerun;  ///< stages to repeat before the backward pass, in order
};

/// One reverse sweep derives what is saved and what reruns when the tensors in `drop` are recomputed. `weights` says
/// which stages train.
RecomputePlan plan_recompute(const Layer& layer, TensorSet drop, const LayerWeights& weights);

void run_backward(const Layer& layer, const RecomputePlan& plan, LayerRun& run);

}  // namespace qtrain
