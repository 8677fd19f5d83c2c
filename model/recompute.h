#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/input_offload.h"
#include "model/layer/layer.h"

namespace qtrain {

/// What the backward pass recomputes instead of reading it from memory.
class RecomputePolicy {
 public:
  enum class Kind : std::uint8_t {
    none,
    selective,  ///< recomputes norms, activations of the MLP and the like, which are cheap for their size
    block,      ///< recomputes everything but a block's input
  };

  RecomputePolicy() = default;
  explicit RecomputePolicy(Kind kind, std::int64_t group = 1) : kind_(kind), group_(group) {}
  /// Parses a name: "none", "selective", "block", "blocks:N" (all but the input of every N-th block, N >= 2). Returns
  /// nothing for any other name.
  static std::optional<RecomputePolicy> parse(std::string_view name);
  /// Likewise, but throws a usage error for any other name.
  static RecomputePolicy named(std::string_view name);
  /// The policies worth considering for a model with this many layers, from the fastest to the smallest.
  static std::vector<RecomputePolicy> choices(std::int64_t layers);

  std::string name() const;
  Kind kind() const { return kind_; }
  /// Number of consecutive blocks of which only the first saves its input.
  std::int64_t group() const { return group_; }
  /// Whether only inputs of blocks are saved.
  bool whole_blocks() const { return kind_ == Kind::block; }
  /// The tensors of a layer that are recomputed if a gradient needs them.
  TensorSet recomputed(const Layer& layer) const;

  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;

 private:
  Kind kind_ = Kind::none;
  std::int64_t group_ = 1;
};

/// Where a model gets the activations that its backward pass reads from.
struct RecomputeChoice {
  RecomputePolicy policy = {};
  BlockInputs inputs = BlockInputs::device;  ///< on the host only with policies that save nothing but block inputs
};

/// The effect of a recompute policy (activation checkpointing, Chen et al. 2016; selective: Korthikanti et al. 2022) on
/// a layer.
struct RecomputePlan {
  TensorSet saved;         ///< tensors that have their own memory in every layer
  std::vector<int> rerun;  ///< stages to rerun before the backward pass, in order
  TensorSet unread;        ///< of what they write: tensors that neither they nor the backward pass read
};

/// Derives in one reverse sweep what is saved and which stages rerun if the tensors in `drop` are recomputed. `weights`
/// says which stages train.
RecomputePlan plan_recompute(const Layer& layer, TensorSet drop, const LayerWeights& weights);

/// The largest gradient of activations that the layer does not need during the adjoint of a stage, whose index is
/// `stage`: it is not needed any more, or nothing has been written to it yet.
std::optional<TensorId> idle_gradient(const Layer& layer, std::size_t stage);

void run_backward(const Layer& layer, const RecomputePlan& plan, LayerRun& run);

}  // namespace qtrain
