#include "model/adapter_gemms.h"

#include <algorithm>
#include <optional>

#include "kernels/adapter_columns.h"
#include "kernels/adapter_grads.h"
#include "model/recompute.h"

namespace qtrain {
namespace {

constexpr std::int64_t kAligned = 8;  ///< 16-bit elements that a GPU moves at once
constexpr std::int64_t kSector = 16;  ///< 16-bit elements of a memory sector, in which rows begin

/// Copies of quantized weights are counted as a quarter: they are expanded anyway, unless there is memory for dense
/// ones.
constexpr std::int64_t kLessIfQuantized = 4;

std::int64_t copied(const LayerParams& params, const LinearGroup& group, std::int64_t elements) {
  return elements / (params[group.layers.front()].quantized ? kLessIfQuantized : 1);
}

/// That y [T, out] is not written once more saves T * out elements, at about two thirds of the bandwidth with which the
/// copy of W moves 2 in * out.
bool saves_in_results(const LayerParams& params, const GroupInPass& of, std::int64_t in) {
  return of.tokens >= copied(params, of.group, 2 * in);
}
/// Likewise for dx [T, in], less the copy of dy [T, out].
bool saves_in_gradients(const LayerParams& params, const GroupInPass& of, const Shape& w) {
  return of.tokens * (3 * w[1] - 2 * w[0]) >= copied(params, of.group, 4 * w.numel());
}

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

std::int64_t spaced(std::int64_t width, std::int64_t ranks) {
  return width + (ranks + kSector - 1) / kSector * kSector;
}

/// Whether a gradient that is idle during the group's adjoint has rows of `width` elements.
bool has_idle_gradient(const Layer& layer, const LinearGroup& group, std::int64_t width) {
  for (std::size_t i = 0; i < layer.stages.size(); ++i)
    if (layer.stages[i]->writes.has(group.lora)) {
      const std::optional<TensorId> idle = idle_gradient(layer, i);
      return idle && layer.spec(*idle).shape_for(1).numel() >= width;
    }
  return false;
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
  if (choice == AdapterGemms::by_size && !saves_in_results(params, of, in)) return 0;
  if (in % kAligned != 0 || of.group.layers.size() > ops::AdapterColumns::kMaxLayers) return 0;
  if (!has_spaced_input(model.layers()[of.layer], of.group)) return 0;
  if (!has_frozen_weights(params, of.group, options.activation_dtype)) return 0;
  return spaced(in, ranks);
}

std::int64_t joined_gradient_stride(const Transformer& model, AdapterGemms choice, const GroupInPass& of) {
  const TransformerOptions& options = model.options();
  const LayerParams& params = model.params().layers()[of.layer];
  const Shape w = params[of.group.layers.front()].shape();
  const std::int64_t ranks = ranks_of(params, of.group), out = w[0], in = w[1];
  if (choice == AdapterGemms::apart || of.group.layers.size() != 1 || ranks == 0) return 0;
  if (!supports(options, model.device()) || !has_frozen_weights(params, of.group, options.activation_dtype)) return 0;
  if (choice == AdapterGemms::by_size && !saves_in_gradients(params, of, w)) return 0;
  if (in < out || in % kAligned != 0 || out % kAligned != 0) return 0;
  if (ranks % kAligned != 0 || ranks > ops::AdapterGrads::kMaxRank) return 0;
  const std::int64_t stride = spaced(out, ranks);
  return has_idle_gradient(model.layers()[of.layer], of.group, stride) ? stride : 0;
}

}  // namespace qtrain
