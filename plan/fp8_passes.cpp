#include "plan/fp8_passes.h"

#include <algorithm>

#include "kernels/fp8.h"

namespace qtrain {
namespace {

constexpr double kCode = 1;  ///< bytes

/// Layers that are one GEMM.
struct GemmOfLayers {
  bool found_x = false, found_dy = false;  ///< whether the largest magnitude is known
  double in = 0, out = 0, layers = 0;
  bool has_bias = false, multiplies = true, in_squares = true;

  double weights() const { return in * out; }
  void add(const LinearParams& l) {
    const Shape shape = l.shape();
    in_squares = in_squares && static_cast<std::int64_t>(out) % ops::kFp8Block == 0;
    in = static_cast<double>(shape[1]);
    out += static_cast<double>(shape[0]);
    layers += 1;
    has_bias = has_bias || l.bias;
    multiplies =
        multiplies && l.kind == LinearKind::plain && shape[0] % ops::kFp8Row == 0 && shape[1] % ops::kFp8Row == 0;
  }
};

enum class WeightCodes : std::uint8_t { as_they_are, transposed };

class PassesOfBlock {
 public:
  explicit PassesOfBlock(const TransformerOptions& o)
      : trains_(o.base == Update::trained),
        stored_(o.multiplies_stored_fp8() ? o.quantization->fp8 : std::nullopt),
        element_(static_cast<double>(size_of(o.activation_dtype))),
        blocks_(o.has_fp8_blocks()),
        forward_(o.fp8_forward) {
    if (blocks_) passes.rate = kFp8BlockRate;
  }

  void add(const GemmOfLayers& g) {
    // A bias, too, keeps the forward pass in 16 bits.
    if (g.multiplies && !g.has_bias && forward_) {
      passes.forward.flops += 2 * g.weights();
      encode(passes.forward, g.in, g.found_x);
      prepare_weights(passes.forward, g, WeightCodes::as_they_are);
    } else {
      expand(passes.forward, g);
    }
    if (!g.multiplies) return expand(passes.backward, g);
    passes.backward.flops += (trains_ ? 4 : 2) * g.weights();
    encode(passes.backward, g.out, g.found_dy);
    prepare_weights(passes.backward, g, WeightCodes::transposed);
    if (!trains_) return;
    encode(passes.backward, g.out, g.found_dy);
    encode(passes.backward, g.in, false);
  }

  Fp8Passes passes;

 private:
  // The operand is read once to be encoded and, unless the kernel that wrote it has found the largest magnitude, once
  // before. One more kernel computes the scale. Blocks are read once, by one kernel.
  double bytes_to_encode(double elements, bool found) const {
    return elements * ((found || blocks_ ? 1 : 2) * element_ + kCode);
  }
  int launches_to_encode(bool found) const { return blocks_ ? 1 : found ? 2 : 3; }
  void encode(Fp8Pass& pass, double elements, bool found) const {
    pass.bytes += bytes_to_encode(elements, found);
    pass.launches += launches_to_encode(found);
  }
  bool reads_stored(const GemmOfLayers& g) const {
    if (!stored_) return false;
    return blocks_ ? stored_->has_squares() && g.in_squares
                   : stored_->has_one_scale() && (!stored_->of_files || g.layers == 1);
  }
  void prepare_weights(Fp8Pass& pass, const GemmOfLayers& g, WeightCodes how) const {
    if (reads_stored(g)) {
      pass.launches += blocks_ ? g.layers : 0;  // for the scales
      if (how == WeightCodes::as_they_are) return;
      pass.weight_bytes += 2 * kCode * g.weights();
      pass.launches += 1;
      return;
    }
    expand(pass, g);
    pass.weight_bytes += bytes_to_encode(g.weights(), false);
    pass.launches += launches_to_encode(false);
  }
  void expand(Fp8Pass& pass, const GemmOfLayers& g) const {
    if (!stored_) return;
    pass.weight_bytes += (kCode + element_) * g.weights();
    pass.launches += g.layers;
  }

  bool trains_;
  std::optional<Fp8Storage> stored_;
  double element_;
  bool blocks_, forward_;
};

bool finds_largest(const Layer& layer, TensorId t) {
  const std::string name = layer.spec(t).name + ".largest";
  return std::ranges::any_of(layer.tensors, [&](const TensorSpec& s) { return s.name == name; });
}

// The gradient of the MLP's gate finds the largest magnitude of what it writes.
bool is_gated(const Layer& layer, const LinearGroup& group) {
  return group.layers.size() == 2 &&
         std::ranges::any_of(layer.stages, [](const auto& stage) { return stage->name == "packed_glu"; });
}

}  // namespace

Fp8Passes fp8_passes(const Transformer& model) {
  if (!model.options().fp8) return {};
  PassesOfBlock sum(model.options());
  const Layer& layer = model.layers().front();
  const LayerParams& params = model.params().layers().front();
  for (const LinearGroup& group : layer.groups) {
    const bool joined = group.results == ResultLayout::joined;
    const GemmOfLayers none{.found_x = finds_largest(layer, group.x), .found_dy = joined && is_gated(layer, group)};
    GemmOfLayers all = none;
    for (const LinearId id : group.layers) {
      all.add(params[id]);
      if (joined && id != group.layers.back()) continue;
      sum.add(all);
      all = none;
    }
  }
  return sum.passes;
}

}  // namespace qtrain
