#pragma once
#include "model/layer/builder.h"

/// What layers of many families are made of. Names of parameters are those of transformers.
namespace qtrain::blocks {

/// self_attn: o_proj(attention(q, k, v)) of x, with the config's biases, norms of queries and keys, rotation, window,
/// scale, cap and sinks for this layer.
TensorId self_attention(LayerBuilder& b, TensorId x);

/// mlp: down_proj(activation(gate_proj x) * up_proj x).
TensorId gated_mlp(LayerBuilder& b, TensorId x);

/// mlp: the same by experts in layers that have them. Each token goes to a few of them, which a router chooses and
/// weighs.
TensorId sparse_mlp(LayerBuilder& b, TensorId x);

/// x + self_attention(norm(x)), then the same with gated_mlp or sparse_mlp: Llama and most of its kin.
Layer pre_norm_layer(const ModelConfig& config, std::int64_t index);

}  // namespace qtrain::blocks
