#pragma once
#include <cstdint>

#include "model/transformer.h"

namespace qtrain {

/// Whether adapters are computed in the GEMMs of their layers (see ProjectionForward). Each pass of a group then makes
/// a copy of its weights with the adapters beside them.
enum class AdapterGemms : std::uint8_t {
  by_size,  ///< if the tokens are so many that the copy costs less than what it saves
  joined,   ///< where possible
  apart,
};

/// One group of linear layers in a pass over micro-batches of up to `tokens` tokens.
struct GroupInPass {
  std::size_t layer;
  const LinearGroup& group;
  std::int64_t tokens;
};
/// The elements between rows of the group's input, if the group and its adapters are one GEMM; otherwise 0. That takes
/// 16-bit activations on a GPU, frozen weights, an input that only stages with such tensors access, and adapters
/// without dropout and magnitudes.
std::int64_t joined_stride(const Transformer& model, AdapterGemms choice, const GroupInPass& of);
/// The elements between rows of [dy | du], if the gradient of the group's input is one GEMM, [dy | du] [W; A];
/// otherwise 0. This is so for a single layer with at least as many inputs as outputs, because dy is copied. Ranks are
/// 8 or 16 (see ops::reads_once), and another gradient has memory for the copy.
std::int64_t joined_gradient_stride(const Transformer& model, AdapterGemms choice, const GroupInPass& of);
/// The sum of the ranks of a group's adapters.
std::int64_t ranks_of(const LayerParams& layer, const LinearGroup& group);

}  // namespace qtrain
