#pragma once
#include <optional>

#include "model/layer/builder.h"

/// Building blocks that many families share. Parameters are named as in transformers.
namespace qtrain::blocks {

/// self_attn: o_proj(attention(q, k, v)) of x, with this layer's biases, norms of queries and keys, rotation, window,
/// scale, softcap and sinks; with a residual, stages::linear_add of both.
TensorId self_attention(LayerBuilder& b, TensorId x, std::optional<TensorId> residual = {});

/// mlp: down_proj(activation(gate_proj x) * up_proj x); with a residual, stages::linear_add of both.
TensorId gated_mlp(LayerBuilder& b, TensorId x, std::optional<TensorId> residual = {});

/// mlp: a mixture of experts in layers that have one (each token goes to a few experts, chosen and weighted by a
/// router), else gated_mlp.
TensorId sparse_mlp(LayerBuilder& b, TensorId x);

/// x + self_attention(norm(x)), then likewise with gated_mlp or sparse_mlp: Llama and most similar families.
Layer pre_norm_layer(const ModelConfig& config, std::int64_t index);

}  // namespace qtrain::blocks
