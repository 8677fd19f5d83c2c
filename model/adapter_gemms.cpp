#include "model/adapter_gemms.h"

#include <algorithm>

#include "kernels/adapter_columns.h"

namespace qtrain {
namespace {

constexpr std::int64_t kAligned = 8;  ///< 16-bit elements that a GPU moves at once
constexpr std::int64_t kSector = 16;  ///< 16-bit elements of a memory sector, in which rows begin

/// The copy of W moves 2 in * out elements, and that y [T, out] is neither read nor written again saves 2 T * out. With
/// twice as many tokens as inputs that is twice as much.
constexpr std::int64_t kTokensPerInput = 2;

bool supports(const TransformerOptions& o, Device device) {
  return device.kind == DeviceKind::cuda && size_of(o.activation_dtype) == 2 && !o.fp8 && o.lora &&
         o.lora->dropout == 0 && !o.lora->dora &&
         (!o.quantization || (!o.quantization->fp8 && o.dense_dtype == o.activation_dtype));
}

/// Whether rows of the group's input may be spaced, and no other group needs columns after it.
bool has_spaced_input(const Layer& layer, const LinearGroup& group) {
  if (layer.residual.has(group.x) || group.x == layer.input || group.x == layer.output) return false;
  int readers = 0;
  for (const auto& stage : layer.stages) {
    const TensorSet all = stage->reads | stage->writes | stage->adjoint_reads | stage->weight_reads;
    if (all.has(group.x) && !stage->spaced.has(group.x)) return false;
    readers += stage->reads.has(group.x) ? 1 : 0;
  }
  return readers == 1;
}

bool has_frozen_weights(const LayerParams& params, const LinearGroup& group, DType activations) {
  const bool quantized = params[group.layers.front()].quantized != nullptr;
  return std::ranges::all_of(group.layers, [&](LinearId id) {
    const LinearParams& p = params[id];
    if (quantized || p.quantized) return quantized && p.quantized;
    return !p.weight->trained() && p.weight->spec.dtype == activations;
  });
}

}  // namespace

std::int64_t ranks_of(const LayerParams& layer, const LinearGroup& group) {
  std::int64_t sum = 0;
  for (const LinearId id : group.layers) sum += layer[id].rank();
  return sum;
}

std::int64_t joined_stride(const Transformer& model, AdapterGemms choice, const GroupInPass& of) {
  const TransformerOptions& options = model.options();
  const LayerParams& params = model.params().layers()[of.layer];
  const std::int64_t ranks = ranks_of(params, of.group), in = params[of.group.layers.front()].shape()[1];
  if (choice == AdapterGemms::apart || ranks == 0 || !supports(options, model.device())) return 0;
  if (choice == AdapterGemms::by_size && of.tokens < kTokensPerInput * in) return 0;
  if (in % kAligned != 0 || of.group.layers.size() > ops::AdapterColumns::kMost) return 0;
  if (!has_spaced_input(model.layers()[of.layer], of.group)) return 0;
  if (!has_frozen_weights(params, of.group, options.activation_dtype)) return 0;
  return in + (ranks + kSector - 1) / kSector * kSector;
}

}  // namespace qtrain
