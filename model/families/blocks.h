#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/layer/builder.h"

/// Building blocks that many families share. Parameters are named as in transformers.
namespace qtrain::blocks {

/// self_attn: o_proj(attention(q, k, v)) of x, with this layer's biases, norms of queries and keys, rotation, window,
/// scale, softcap and sinks; with a residual, stages::linear_add of both.
TensorId self_attention(LayerBuilder& b, TensorId x, std::optional<TensorId> residual = {});

/// mlp: down_proj(activation(gate_proj x) * up_proj x); with a residual, stages::linear_add of both.
TensorId gated_mlp(LayerBuilder& b, TensorId x, std::optional<TensorId> residual = {});
/// The same under other names and of another width.
struct GatedMlp {
  TensorId x;
  std::string module = "mlp";
  std::int64_t width = 0;
  std::string gguf_end = {};  ///< "ffn_gate" + this
  std::optional<TensorId> residual = {};
};
TensorId gated_mlp(LayerBuilder& b, const GatedMlp& m);

/// mlp: a mixture of experts: each token goes to a few experts, chosen and weighted by a router.
TensorId sparse_mlp(LayerBuilder& b, TensorId x);

/// Whether the layer has a mixture of experts.
bool is_sparse(const LayerBuilder& b);

/// x + self_attention(norm(x)), then likewise with gated_mlp or sparse_mlp: Llama and most similar families.
Layer pre_norm_layer(const ModelConfig& config, std::int64_t index);

/// x + norm(self_attention(x)), then likewise with gated_mlp: OLMo and EXAONE, with norms after each branch.
Layer post_norm_layer(const ModelConfig& config, std::int64_t index);

}  // namespace qtrain::blocks
