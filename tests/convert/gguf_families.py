"""Files of make_gguf_goldens.py for families that differ only in their tensors and hyperparameters: one tokenizer,
matrices in f16, norms, biases and routers in f32."""
import gguf
import torch
import transformers
from gguf import GGMLQuantizationType as T
from make_gguf_goldens import (OUT, TEXTS, add_byte_tokenizer, add_config, add_weights, byte_tokenizer,
                               check_with_transformers, finish, pre_tokenizers, save_digests)

SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
             rms_norm_eps=1e-6, max_position_embeddings=128, pad_token_id=0, bos_token_id=0, eos_token_id=1)
LINEAR = dict(factor=8.0, rope_type="linear")
# Name: (architecture, model type and config beyond SIZES, hyperparameters to add with gguf-py, expected values in
# config.json). One of SmolLM3's four layers has no rotation; one of Gemma 3's six layers attends to all tokens.
FAMILIES = {
    "smollm3": ("smollm3", dict(model_type="smollm3", num_hidden_layers=4), {}, dict(rope_theta=2000000.0)),
    "olmo2": ("olmo2", dict(model_type="olmo2", tie_word_embeddings=False), {}, dict(tie_word_embeddings=False)),
    "granite": ("granite", dict(model_type="granite", tie_word_embeddings=True),
                dict(embedding_scale=12.0, attention_scale=0.015625, residual_scale=0.25, logit_scale=8.0),
                dict(embedding_multiplier=12.0, attention_multiplier=0.015625, residual_multiplier=0.25,
                     logits_scaling=8.0)),
    "gemma3": ("gemma3", dict(model_type="gemma3_text", head_dim=16, num_hidden_layers=6, query_pre_attn_scalar=16,
                              sliding_window=8),
               dict(sliding_window=8, rope_scaling_type=gguf.RopeScalingType.LINEAR, rope_scaling_factor=8.0),
               dict(rope_theta=1000000.0, rope_scaling=LINEAR, sliding_window=8, query_pre_attn_scalar=16,
                    hidden_activation="gelu_pytorch_tanh",
                    layer_types=["sliding_attention"] * 5 + ["full_attention"])),
    "qwen2moe": ("qwen2moe", dict(model_type="qwen2_moe", num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8,
                                  shared_expert_intermediate_size=12),
                 dict(expert_count=3, expert_used_count=2, expert_feed_forward_length=8,
                      expert_shared_feed_forward_length=12),
                 dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12,
                      norm_topk_prob=False, use_sliding_window=False, tie_word_embeddings=False)),
    "olmo3": ("olmo2", dict(model_type="olmo3", num_hidden_layers=4, sliding_window=8),
              dict(sliding_window=8, rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=8.0,
                   rope_scaling_orig_ctx_len=32),
              dict(rope_theta=500000.0, sliding_window=8,
                   rope_scaling=dict(factor=8.0, rope_type="yarn", original_max_position_embeddings=32),
                   layer_types=["sliding_attention"] * 3 + ["full_attention"])),
    "exaone4": ("exaone4", dict(model_type="exaone4", sliding_window=None, layer_types=["full_attention"]), {},
                dict(sliding_window=None, layer_types=["full_attention"])),
    "olmoe": ("olmoe", dict(model_type="olmoe", num_experts=3, num_experts_per_tok=2),
              dict(expert_count=3, expert_used_count=2),
              dict(num_experts=3, num_experts_per_tok=2, norm_topk_prob=False)),
    "hunyuan": ("hunyuan-dense", dict(model_type="hunyuan_v1_dense", head_dim=8, tie_word_embeddings=True), {},
                dict(rope_theta=10000.0, rope_scaling=None)),
    "mixtral": ("llama", dict(model_type="mixtral", num_local_experts=3, num_experts_per_tok=2),
                dict(expert_count=3, expert_used_count=2),
                dict(num_local_experts=3, num_experts_per_tok=2, rope_theta=1000000.0, sliding_window=None)),
}


def kind_of(name):
    whole = ("norm", ".gate.", "shared_expert_gate", "bias")
    return T.F32 if any(part in name for part in whole) else T.F16


def one(name, architecture, config, keys, expected):
    path = OUT / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    tok = byte_tokenizer(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)]), ["<s>", "</s>"])
    vocab = add_byte_tokenizer(writer, tok, "smollm")
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    config = transformers.AutoConfig.for_model(**(SIZES | config), vocab_size=vocab)
    add_config(writer, config)
    for key, value in keys.items():
        getattr(writer, f"add_{key}")(value)
    weights = add_weights(writer, config, kind_of, len(name))
    finish(writer, path)
    if name != "mixtral":  # transformers would read it as a Llama
        check_with_transformers(path, weights, name)
    # Adding 1 rounds the norms of Gemma 3, so its weights are compared in float16.
    dtype = torch.float16 if name == "gemma3" else torch.float32
    save_digests({k: v.to(dtype) for k, v in weights.items()}, name)
    ours = dict(model_type=config.model_type, num_hidden_layers=config.num_hidden_layers, torch_dtype=str(dtype)[6:],
                tie_word_embeddings=config.tie_word_embeddings, max_position_embeddings=128) | expected
    return {"config": ours, "generation_config": {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0},
            "tokenizer_config": {"eos_token": "</s>", "add_bos_token": False},
            "ids": [[t, tok.encode(t).ids] for t in TEXTS[:14]]}


def make():
    return {name: one(name, *of) for name, of in FAMILIES.items()}
