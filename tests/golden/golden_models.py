"""The small models of the goldens: the definition of each case, and how its folder is written."""

import hashlib
import json
import os
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = dict(num_hidden_layers=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
DEFAULT_ROPE = dict(rope_type="default", rope_theta=10000.0)


@dataclass
class Case:
    """A folder in data/. `config` is the meaning of config.json; `link` uses the weights of another case."""

    name: str
    config: dict = field(default_factory=dict)
    link: str = ""          # weights are a symbolic link to this case's
    same_as: str = ""       # batch and expectations too: the same model, written in another form
    raw_config: bool = False  # write `config` as it stands instead of having save_pretrained rewrite it
    dtype: str = "float32"
    max_shard_size: str = "50GB"
    lengths: tuple = (7, 1, 12, 5, 9)
    every_gradient: bool = True
    lora: dict | None = None
    mxfp4: bool = False     # matrices of experts as blocks of 4 bits


LLAMA_MHA = dict(model_type="llama", vocab_size=67, hidden_size=16, intermediate_size=24, num_attention_heads=2,
                 num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-6, rope_parameters=DEFAULT_ROPE,
                 **SMALL)
LLAMA_GQA3 = dict(model_type="llama", vocab_size=64, hidden_size=18, intermediate_size=22, num_attention_heads=3,
                  num_key_value_heads=1, tie_word_embeddings=True, rms_norm_eps=1e-5,
                  rope_parameters=dict(rope_type="default", rope_theta=100000.0), **SMALL)
MISTRAL = dict(model_type="mistral", vocab_size=71, hidden_size=16, intermediate_size=20, num_attention_heads=4,
               num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5, sliding_window=4,
               rope_parameters=DEFAULT_ROPE, **SMALL)
QWEN2 = dict(model_type="qwen2", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=4,
             num_key_value_heads=1, tie_word_embeddings=True, rms_norm_eps=1e-6, use_sliding_window=True,
             sliding_window=4, max_window_layers=1, rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
             **SMALL)
QWEN3 = dict(model_type="qwen3", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=3,
             num_key_value_heads=1, head_dim=8, tie_word_embeddings=False, rms_norm_eps=1e-6,
             rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **SMALL)
QWEN3_GQA7 = dict(QWEN3, vocab_size=97, num_attention_heads=7, head_dim=4, tie_word_embeddings=True)

# Softcaps so low that they matter, and a window shorter than some rows.
GEMMA2 = dict(model_type="gemma2", vocab_size=64, hidden_size=18, intermediate_size=20, num_attention_heads=3,
              num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=6, sliding_window=4, attn_logit_softcapping=1.5,
              final_logit_softcapping=2.5, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=DEFAULT_ROPE,
              hidden_activation="gelu_pytorch_tanh", **SMALL)
# One layer has no experts; some batches have fewer rows than experts.
QWEN3_MOE = dict(model_type="qwen3_moe", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=3,
                 num_key_value_heads=1, head_dim=8, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10,
                 norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1, tie_word_embeddings=False,
                 rms_norm_eps=1e-6, rope_parameters=DEFAULT_ROPE, **(SMALL | dict(num_hidden_layers=3)))

# The middle layer has no rotary embedding; one of the cases has a window.
SMOLLM3 = dict(model_type="smollm3", vocab_size=64, hidden_size=18, intermediate_size=20, num_attention_heads=3,
               num_key_value_heads=1, no_rope_layer_interval=2, tie_word_embeddings=True, rms_norm_eps=1e-6,
               rope_parameters=DEFAULT_ROPE, **(SMALL | dict(num_hidden_layers=3)))
OLMO2 = dict(model_type="olmo2", vocab_size=64, hidden_size=18, intermediate_size=20, num_attention_heads=3,
             num_key_value_heads=1, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=DEFAULT_ROPE, **SMALL)
GRANITE = dict(model_type="granite", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=4,
               num_key_value_heads=2, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
               logits_scaling=1.7, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=DEFAULT_ROPE, **SMALL)
# Two layers with sliding windows and one without, with different bases and scalings that matter within few positions.
GEMMA3 = dict(model_type="gemma3_text", vocab_size=64, hidden_size=18, intermediate_size=20, num_attention_heads=3,
              num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=6, sliding_window=4, sliding_window_pattern=3,
              tie_word_embeddings=True, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh",
              rope_parameters=dict(full_attention=dict(rope_type="linear", factor=2.0, rope_theta=300.0),
                                   sliding_attention=dict(rope_type="default", rope_theta=20.0)),
              **(SMALL | dict(num_hidden_layers=3)))
MIXTRAL = dict(model_type="mixtral", vocab_size=64, hidden_size=16, intermediate_size=10, num_attention_heads=4,
               num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2, sliding_window=None,
               tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=DEFAULT_ROPE, **SMALL)
# Three quarters of a head are rotated; a window shorter than some rows.
PHI3 = dict(model_type="phi3", vocab_size=67, hidden_size=24, intermediate_size=20, num_attention_heads=3,
            num_key_value_heads=1, sliding_window=4, tie_word_embeddings=False, rms_norm_eps=1e-5,
            rope_parameters=DEFAULT_ROPE | dict(partial_rotary_factor=0.75), **SMALL)
PHI4_MINI = dict(PHI3, vocab_size=64, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
                 tie_word_embeddings=True, sliding_window=None)
LONGROPE = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.5], long_factor=[1.2, 2.5, 7.0])
PHI3_LONG = dict(PHI3, original_max_position_embeddings=16, sliding_window=None,
                 rope_parameters=PHI3["rope_parameters"] | LONGROPE | dict(original_max_position_embeddings=16))
# A limit that clamps gates and ups; every other layer has a window.
GPT_OSS = dict(model_type="gpt_oss", vocab_size=64, hidden_size=16, intermediate_size=10, num_attention_heads=3,
               num_key_value_heads=1, head_dim=8, num_local_experts=5, num_experts_per_tok=2, sliding_window=4,
               swiglu_limit=0.9, tie_word_embeddings=False, rms_norm_eps=1e-5,
               rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                    truncate=False, original_max_position_embeddings=16), **SMALL)
OLMOE = dict(model_type="olmoe", vocab_size=64, hidden_size=16, intermediate_size=10, num_attention_heads=4,
             num_key_value_heads=2, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False,
             tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=DEFAULT_ROPE, **SMALL)
# Every second layer has experts, and one more for all tokens behind a gate, of another width.
QWEN2_MOE = dict(model_type="qwen2_moe", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=4,
                 num_key_value_heads=2, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10,
                 shared_expert_intermediate_size=12, norm_topk_prob=False, decoder_sparse_step=2,
                 tie_word_embeddings=False, rms_norm_eps=1e-6, rope_parameters=DEFAULT_ROPE, **SMALL)
# The first and the third layer have a window; only the second has scaled positions, as with layer_types of version 4.
OLMO3 = dict(OLMO2, model_type="olmo3", sliding_window=4,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"], num_hidden_layers=3,
             rope_parameters=dict(
                 full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                     attention_factor=1.2, original_max_position_embeddings=16),
                 sliding_attention=dict(rope_type="default", rope_theta=500000.0)))
# Two layers with windows and one without, which has no rotary embedding.
EXAONE4 = dict(model_type="exaone4", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=4,
               num_key_value_heads=2, head_dim=6, sliding_window=4, sliding_window_pattern=3,
               tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=DEFAULT_ROPE,
               **(SMALL | dict(num_hidden_layers=3)))
# Of two layers, one has the window.
MINISTRAL = dict(MISTRAL, model_type="ministral", head_dim=4, layer_types=["full_attention", "sliding_attention"])
# Positions whose queries are scaled: all rows but the first are longer than in pre-training.
MINISTRAL3 = dict(MISTRAL, model_type="ministral3", head_dim=6, sliding_window=None,
                  rope_parameters=dict(rope_type="yarn", rope_theta=1000000.0, factor=16.0, beta_fast=32.0,
                                       beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5,
                                       original_max_position_embeddings=4, max_position_embeddings=64))
# Queries and keys have norms after the rotation, whose base `alpha` enlarges.
HUNYUAN = dict(model_type="hunyuan_v1_dense", vocab_size=64, hidden_size=16, intermediate_size=20,
               num_attention_heads=4, num_key_value_heads=2, head_dim=6, tie_word_embeddings=True, rms_norm_eps=1e-5,
               rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, alpha=20.0, factor=1.0, beta_fast=32,
                                    beta_slow=1, mscale=1.0, mscale_all_dim=1.0), **SMALL)
# The router loss with a coefficient that makes it as important as the cross-entropy.
BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.5)

LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
YARN_ROPE = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
YARN_FULL = dict(YARN_ROPE, beta_fast=4.0, beta_slow=1.0, attention_factor=1.3, truncate=False)
ARCHITECTURE = dict(llama="LlamaForCausalLM", mistral="MistralForCausalLM", qwen2="Qwen2ForCausalLM",
                    qwen3="Qwen3ForCausalLM", gemma2="Gemma2ForCausalLM", qwen3_moe="Qwen3MoeForCausalLM",
                    smollm3="SmolLM3ForCausalLM", olmo2="Olmo2ForCausalLM", granite="GraniteForCausalLM",
                    gemma3_text="Gemma3ForCausalLM", mixtral="MixtralForCausalLM", phi3="Phi3ForCausalLM",
                    gpt_oss="GptOssForCausalLM", qwen2_moe="Qwen2MoeForCausalLM", olmo3="Olmo3ForCausalLM",
                    exaone4="Exaone4ForCausalLM",
                    ministral="MinistralForCausalLM", ministral3="Ministral3ForCausalLM", hunyuan_v1_dense="HunYuanDenseV1ForCausalLM",
                    olmoe="OlmoeForCausalLM")


def v4(config, rope_scaling=None, **extra):
    """The same config as transformers 4 wrote it: separate rope_theta and rope_scaling, torch_dtype."""
    out = {k: v for k, v in config.items() if k != "rope_parameters"}
    out |= dict(architectures=[ARCHITECTURE[config["model_type"]]], hidden_act="silu", attention_dropout=0.0,
                initializer_range=0.02, use_cache=True, rope_theta=config["rope_parameters"]["rope_theta"],
                rope_scaling=rope_scaling, torch_dtype="float32", transformers_version="4.51.3")
    return out | extra


def without(config, *keys):
    return {k: v for k, v in config.items() if k not in keys}


def gemma3_v4():
    """The config as version 4 wrote it, without the keys that published configs omit."""
    config = without(GEMMA3, "rope_parameters", "hidden_activation", "tie_word_embeddings", "rms_norm_eps")
    full, sliding = (GEMMA3["rope_parameters"][kind] for kind in ("full_attention", "sliding_attention"))
    return config | dict(architectures=["Gemma3ForCausalLM"], rope_theta=full["rope_theta"], torch_dtype="float32",
                         rope_local_base_freq=sliding["rope_theta"], rope_scaling=dict(rope_type="linear", factor=2.0))


def olmo3_v4():
    """The config as version 4 wrote it: the scaling applies only to layers without a window."""
    full = OLMO3["rope_parameters"]["full_attention"]
    scaling = {k: v for k, v in full.items() if k != "rope_theta"}
    return v4(OLMO3 | dict(rope_parameters=full), scaling)


def with_rope(config, rope, **extra):
    return dict(config, rope_parameters=dict(rope_theta=config["rope_parameters"]["rope_theta"]) | rope, **extra)


LONG = (40, 1, 17, 23)
# Lengths of rows with which rounding GEMMs to bf16 does not send any token to another expert.
STEADY_GPT_OSS, STEADY_PATTERNS = (7, 1, 11, 5, 9), (8, 1, 12, 5, 9)
LORA_ALL = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", use_rslora=False)
LORA_EXPERTS = dict(LORA_ALL, target_parameters=["router.weight", "gate_up_proj", "down_proj"])
LORA_RS = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], use_rslora=True)


# Patterns for parameters use transformers' names.
EXPERTS_PATTERNS = dict(LORA_ALL, target_modules=["q_proj"], target_parameters=["gate_up_proj", "down_proj", "gate.weight"],
                        rank_pattern={r"layers.0.mlp.experts.gate_up_proj": 3, r"mlp.gate.weight": 2},
                        alpha_pattern={"down_proj": 12, r"layers\.2\.mlp\.gate\.weight": 5})


def rope_case(name, config, link, **more):
    return Case(name, config, link=link, lengths=LONG, every_gradient=False, **more)


CASES = [
    Case("llama_mha_untied", LLAMA_MHA),
    Case("llama_mha_untied_v4", v4(LLAMA_MHA), raw_config=True, link="llama_mha_untied", same_as="llama_mha_untied"),
    Case("llama_gqa3_tied", LLAMA_GQA3),
    Case("llama_bias", dict(LLAMA_MHA, vocab_size=64, num_attention_heads=4, intermediate_size=20,
                            tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5),
         every_gradient=False),
    Case("llama_bf16", LLAMA_GQA3, dtype="bfloat16", every_gradient=False),
    Case("llama_f16_sharded", LLAMA_GQA3, dtype="float16", max_shard_size="4KB", every_gradient=False),
    Case("mistral_window", MISTRAL, every_gradient=False),
    Case("mistral_no_window", v4(dict(MISTRAL, sliding_window=None)), raw_config=True, link="mistral_window",
         every_gradient=False),
    Case("qwen2_full", v4(dict(QWEN2, use_sliding_window=False)), raw_config=True),
    Case("qwen2_window", QWEN2, link="qwen2_full", every_gradient=False),
    Case("qwen2_window_v4", v4(QWEN2), raw_config=True, link="qwen2_full", same_as="qwen2_window"),
    Case("qwen3_hd8", QWEN3, every_gradient=False),
    Case("qwen3_gqa7_tied", QWEN3_GQA7),
    Case("gemma2", GEMMA2),
    Case("gemma2_no_caps", dict(GEMMA2, attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=6),
         link="gemma2", every_gradient=False),
    Case("lora_gemma2", GEMMA2, link="gemma2", lora=LORA_ALL),
    Case("qwen3_moe", QWEN3_MOE),
    Case("qwen3_moe_unnormalized", dict(QWEN3_MOE, norm_topk_prob=False, num_experts_per_tok=3), link="qwen3_moe",
         every_gradient=False),
    Case("lora_qwen3_moe", QWEN3_MOE, link="qwen3_moe", lora=LORA_ALL),
    Case("smollm3", SMOLLM3),
    Case("smollm3_v4", without(v4(SMOLLM3), "tie_word_embeddings"), raw_config=True, link="smollm3", same_as="smollm3"),
    Case("smollm3_window", v4(dict(SMOLLM3, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=4)),
         raw_config=True, link="smollm3", every_gradient=False),
    Case("lora_smollm3", SMOLLM3, link="smollm3", lora=LORA_ALL),
    Case("olmo2", OLMO2),
    Case("olmo2_v4", without(v4(OLMO2), "rms_norm_eps"), raw_config=True, link="olmo2", same_as="olmo2"),
    Case("lora_olmo2", OLMO2, link="olmo2", lora=LORA_ALL),
    Case("granite", GRANITE),
    Case("granite_v4", v4(GRANITE), raw_config=True, link="granite", same_as="granite"),
    Case("granite_unscaled", without(GRANITE, "embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                     "logits_scaling"), link="granite", every_gradient=False),
    Case("lora_granite", GRANITE, link="granite", lora=LORA_ALL),
    Case("gemma3", GEMMA3),
    Case("gemma3_v4", gemma3_v4(), raw_config=True, link="gemma3", same_as="gemma3"),
    Case("gemma3_capped", dict(GEMMA3, final_logit_softcapping=2.5, sliding_window=6,
                               layer_types=["full_attention", "sliding_attention", "full_attention"]),
         link="gemma3", every_gradient=False),
    Case("lora_gemma3", GEMMA3, link="gemma3", lora=LORA_ALL),
    Case("mixtral", MIXTRAL),
    Case("mixtral_v4", v4(MIXTRAL), raw_config=True, link="mixtral", same_as="mixtral"),
    Case("mixtral_window", dict(MIXTRAL, sliding_window=4, num_experts_per_tok=3), link="mixtral",
         every_gradient=False),
    Case("lora_mixtral", MIXTRAL, link="mixtral", lora=LORA_ALL),
    Case("lora_mixtral_patterns", MIXTRAL, link="mixtral", lengths=STEADY_PATTERNS, lora=EXPERTS_PATTERNS),
    Case("mixtral_balanced", MIXTRAL | BALANCED, link="mixtral", every_gradient=False),
    Case("phi3", PHI3),
    Case("phi3_tied", PHI4_MINI, every_gradient=False),
    Case("phi3_longrope", PHI3_LONG, link="phi3", lengths=LONG, every_gradient=False),
    Case("phi3_longrope_v4", v4(PHI3_LONG, {k: v for k, v in LONGROPE.items() if k != "rope_type"} | dict(type="longrope"),
                                partial_rotary_factor=0.75), raw_config=True, link="phi3", same_as="phi3_longrope"),
    Case("phi3_longrope_short", dict(PHI3_LONG, max_position_embeddings=256, original_max_position_embeddings=64),
         link="phi3", lengths=LONG, every_gradient=False),
    Case("lora_phi3", PHI3, link="phi3", lora=LORA_ALL),
    Case("gpt_oss", GPT_OSS),
    Case("gpt_oss_v4", v4(GPT_OSS, {k: v for k, v in GPT_OSS["rope_parameters"].items() if k != "rope_theta"}),
         raw_config=True, link="gpt_oss", same_as="gpt_oss"),
    Case("gpt_oss_mxfp4", dict(GPT_OSS, hidden_size=32, intermediate_size=32, num_local_experts=3), mxfp4=True,
         every_gradient=False),
    Case("lora_gpt_oss", GPT_OSS, link="gpt_oss", lengths=STEADY_GPT_OSS, lora=LORA_EXPERTS),
    Case("gpt_oss_balanced", GPT_OSS | BALANCED, link="gpt_oss", every_gradient=False),
    Case("qwen2_moe", QWEN2_MOE),
    Case("qwen2_moe_v4", v4(QWEN2_MOE, use_sliding_window=False, sliding_window=4096), raw_config=True,
         link="qwen2_moe", same_as="qwen2_moe"),
    Case("lora_qwen2_moe", QWEN2_MOE, link="qwen2_moe", lora=LORA_ALL),
    Case("olmo3", OLMO3),
    Case("olmo3_v4", olmo3_v4(), raw_config=True, link="olmo3", same_as="olmo3"),
    Case("lora_olmo3", OLMO3, link="olmo3", lora=LORA_ALL),
    Case("exaone4", EXAONE4),
    Case("exaone4_v4", v4(EXAONE4), raw_config=True, link="exaone4", same_as="exaone4"),
    Case("exaone4_full", dict(EXAONE4, sliding_window=None, layer_types=["full_attention"] * 3), link="exaone4",
         every_gradient=False),
    Case("lora_exaone4", EXAONE4, link="exaone4", lora=LORA_ALL),
    Case("ministral", MINISTRAL, link="mistral_window", every_gradient=False),
    Case("ministral_v4", v4(MINISTRAL), raw_config=True, link="mistral_window", same_as="ministral"),
    Case("ministral3", MINISTRAL3),
    Case("lora_ministral3", MINISTRAL3, link="ministral3", lora=LORA_ALL),
    Case("hunyuan", HUNYUAN),
    Case("hunyuan_v4", v4(HUNYUAN, {k if k != "rope_type" else "type": v for k, v in HUNYUAN["rope_parameters"].items()
                                    if k != "rope_theta"}), raw_config=True, link="hunyuan", same_as="hunyuan"),
    Case("lora_hunyuan", HUNYUAN, link="hunyuan", lora=LORA_ALL),
    Case("olmoe", OLMOE),
    Case("olmoe_v4", v4(OLMOE, clip_qkv=None), raw_config=True, link="olmoe", same_as="olmoe"),
    Case("lora_olmoe", OLMOE, link="olmoe", lora=LORA_ALL),
    Case("lora_qwen3_moe_patterns", QWEN3_MOE, link="qwen3_moe", lengths=STEADY_PATTERNS, lora=EXPERTS_PATTERNS),
    Case("lora_qwen3_moe_gate_up", QWEN3_MOE, link="qwen3_moe",
         lora=dict(LORA_RS, target_modules=[], target_parameters=["mlp.experts.gate_up_proj"])),
    Case("qwen3_moe_balanced", QWEN3_MOE | BALANCED, link="qwen3_moe"),
    Case("lora_qwen3_moe_balanced", QWEN3_MOE | BALANCED, link="qwen3_moe", lora=LORA_ALL),
    rope_case("rope_linear", with_rope(LLAMA_MHA, dict(rope_type="linear", factor=2.5)), "llama_mha_untied"),
    Case("rope_linear_v4", v4(LLAMA_MHA, dict(type="linear", factor=2.5)), raw_config=True, link="llama_mha_untied",
         same_as="rope_linear"),
    Case("rope_dynamic", with_rope(LLAMA_MHA, dict(rope_type="dynamic", factor=2.0)) | dict(max_position_embeddings=16),
         link="llama_mha_untied", lengths=(40,), every_gradient=False),
    Case("rope_dynamic_original", with_rope(LLAMA_MHA, dict(rope_type="dynamic", factor=2.0,
                                                            original_max_position_embeddings=8)) |
         dict(max_position_embeddings=16), link="llama_mha_untied", same_as="rope_dynamic"),
    Case("rope_dynamic_short", with_rope(LLAMA_MHA, dict(rope_type="dynamic", factor=2.0)) |
         dict(max_position_embeddings=16), link="llama_mha_untied", lengths=(16, 3), every_gradient=False),
    rope_case("rope_llama3", with_rope(LLAMA_MHA, LLAMA3_ROPE) | dict(max_position_embeddings=512), "llama_mha_untied"),
    Case("rope_llama3_v4", v4(dict(LLAMA_MHA, max_position_embeddings=512), LLAMA3_ROPE), raw_config=True,
         link="llama_mha_untied", same_as="rope_llama3"),
    rope_case("rope_yarn", with_rope(QWEN3, YARN_ROPE) | dict(max_position_embeddings=256), "qwen3_hd8"),
    Case("rope_yarn_v4", v4(dict(QWEN3, max_position_embeddings=256), YARN_ROPE), raw_config=True, link="qwen3_hd8",
         same_as="rope_yarn"),
    rope_case("rope_yarn_explicit", with_rope(QWEN3, YARN_FULL) | dict(max_position_embeddings=256), "qwen3_hd8"),
    Case("lora_llama_all", LLAMA_GQA3, link="llama_gqa3_tied", lora=LORA_ALL),
    Case("lora_qwen3_rs", QWEN3, link="qwen3_hd8", lora=LORA_RS),
    Case("lora_qwen2_bias", v4(dict(QWEN2, use_sliding_window=False)), raw_config=True, link="qwen2_full",
         lora=dict(LORA_ALL, r=3, lora_alpha=16, target_modules=["k_proj", "o_proj", "down_proj"])),
    Case("lora_qwen3_patterns", QWEN3, link="qwen3_hd8",
         lora=dict(LORA_ALL, rank_pattern={"layers.1.self_attn.q_proj": 7, "q_proj": 2, "mlp.up_proj": 6},
                   alpha_pattern={r"mlp\..*": 12})),
    Case("lora_saved_modules", QWEN3, link="qwen3_hd8",
         lora=dict(LORA_RS, modules_to_save=["embed_tokens", "lm_head", "norm"])),
    Case("lora_saved_head_tied", QWEN3_GQA7, link="qwen3_gqa7_tied", lora=dict(LORA_RS, modules_to_save=["lm_head"])),
    Case("lora_saved_embedding_tied", QWEN3_GQA7, link="qwen3_gqa7_tied",
         lora=dict(LORA_RS, modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    Case("lora_embeddings", QWEN3, link="qwen3_hd8",
         lora=dict(LORA_ALL, target_modules=["q_proj", "embed_tokens", "lm_head"], rank_pattern={"lm_head": 3})),
    Case("lora_embedding_tied", QWEN3_GQA7, link="qwen3_gqa7_tied",
         lora=dict(LORA_RS, target_modules=["embed_tokens", "o_proj"])),
    Case("lora_dora_llama", LLAMA_GQA3, link="llama_gqa3_tied", lora=dict(LORA_ALL, use_dora=True)),
    Case("lora_dora_qwen2_bias", v4(dict(QWEN2, use_sliding_window=False)), raw_config=True, link="qwen2_full",
         lora=dict(LORA_RS, use_dora=True, target_modules=["k_proj", "o_proj", "down_proj"])),
    Case("lora_dora_qwen3_head", QWEN3, link="qwen3_hd8",
         lora=dict(LORA_ALL, use_dora=True, target_modules=["q_proj", "up_proj", "lm_head"])),
]


def numbers(name, shape):
    """Nearly standard normal numbers that depend only on the name and the shape. They are odd multiples of 1/16, which
    compress well because there are few; the factor makes them inexact in 16 bits."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    z = np.random.default_rng(seed).standard_normal(tuple(shape))
    return torch.from_numpy((0.97 * (np.floor(8 * z) + 0.5) / 8).astype(np.float32))


@torch.no_grad()
def fill(model, salt, tied=False):
    """Weights that are large enough for every part of the model to matter: activations, scores and logits are of order
    one."""
    for name, p in model.named_parameters():
        z = numbers(f"{salt}/{name}", p.shape)
        if name.endswith("bias"):
            z = 0.3 * z
        elif p.ndim == 1:
            z = (0 if "gemma" in model.config.model_type else 1) + 0.2 * z  # in Gemma, 1 is added to them
        elif "embed_tokens" in name:
            z = (0.3 if tied else 0.7) * z
        else:
            z = z / p.shape[-1] ** 0.5
        p.copy_(z)


def write_json(path, value, **how):
    Path(path).write_text(json.dumps(value, **({"indent": 2} | how)) + "\n")


def write_rows(path, head, rows):
    """A JSON object with each entry of `rows` on its own line."""
    lines = ",\n  ".join(json.dumps(r) for r in rows)
    front = "".join(f"{json.dumps(k)}: {json.dumps(v)},\n " for k, v in head.items())
    Path(path).write_text("{" + front + f'"rows": [\n  {lines}]}}\n')


def link(path, target):
    path.symlink_to(os.path.relpath(target, path.parent))


def write_model(case, root):
    """Writes config.json and model*.safetensors of a case."""
    folder = root / case.name
    folder.mkdir(parents=True)
    config = AutoConfig.for_model(**{k: deepcopy(v) for k, v in case.config.items() if k != "torch_dtype"})
    if case.link:
        for source in sorted((root / case.link).glob("model*.safetensors*")):
            link(folder / source.name, source)
    else:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        fill(model, case.name, config.tie_word_embeddings)
        model.to(getattr(torch, case.dtype)).save_pretrained(folder, max_shard_size=case.max_shard_size)
        if case.mxfp4:
            quantize_experts(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
    if case.raw_config:
        write_json(folder / "config.json", case.config)
    elif case.link:
        config.architectures, config.dtype = [ARCHITECTURE[config.model_type]], case.dtype
        config.save_pretrained(folder)


def quantize_experts(folder):
    """Random blocks and scales in place of the experts' matrices: any bits are a valid matrix."""
    path = folder / "model.safetensors"
    tensors, rng = load_file(path), np.random.default_rng(4)
    for name in [n for n in tensors if n.endswith("_proj") and ".experts." in n]:
        count, inner, out = tensors.pop(name).shape
        blocks = rng.integers(0, 256, (count, out, inner // 32, 16)).astype(np.uint8)
        scales = rng.integers(122, 126, (count, out, inner // 32)).astype(np.uint8)
        tensors |= {f"{name}_blocks": torch.from_numpy(blocks), f"{name}_scales": torch.from_numpy(scales)}
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | dict(quantization_config=dict(
        quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                      "model.embed_tokens", "lm_head"])))


def labels_for(kind, ids):
    """Rows in turn have the loss on all tokens (including position 0), on the tail, on none, and on alternating
    runs."""
    if kind == 0:
        return list(ids)
    if kind == 1:
        cut = len(ids) // 2
        return [-100] * cut + list(ids[cut:])
    if kind == 2:
        return [t if (i // 2) % 2 else -100 for i, t in enumerate(ids)]
    return [-100] * len(ids)


def make_rows(case):
    """Rows of different lengths; in batches of more than three, the last row has no targets."""
    rng = np.random.default_rng(len(case.name) * 1000 + sum(case.lengths))
    rows = []
    for i, n in enumerate(case.lengths):
        ids = rng.integers(3, case.config["vocab_size"], n).tolist()
        last = i + 1 == len(case.lengths) and len(case.lengths) > 3
        rows.append(dict(input_ids=ids, labels=labels_for(3 if last else i % 3, ids)))
    return rows
