"""The small models of the goldens: what each case is, and how its folder is written."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = dict(num_hidden_layers=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
DEFAULT_ROPE = dict(rope_type="default", rope_theta=10000.0)


@dataclass
class Case:
    """One folder of data/. `config` is what config.json means; `link` takes the weights of another case."""

    name: str
    config: dict = field(default_factory=dict)
    link: str = ""          # weights are a symbolic link to this case's
    same_as: str = ""       # batch and expectations too: the same model, written in another form
    raw_config: bool = False  # write `config` as it stands instead of what save_pretrained makes of it
    dtype: str = "float32"
    max_shard_size: str = "50GB"
    lengths: tuple = (7, 1, 12, 5, 9)
    every_gradient: bool = True
    lora: dict | None = None


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

# Caps so low that they bend, and a window that rows exceed.
GEMMA2 = dict(model_type="gemma2", vocab_size=64, hidden_size=18, intermediate_size=20, num_attention_heads=3,
              num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=6, sliding_window=4, attn_logit_softcapping=1.5,
              final_logit_softcapping=2.5, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters=DEFAULT_ROPE,
              hidden_activation="gelu_pytorch_tanh", **SMALL)
# One layer without experts; fewer rows than experts in some batches.
QWEN3_MOE = dict(model_type="qwen3_moe", vocab_size=64, hidden_size=16, intermediate_size=20, num_attention_heads=3,
                 num_key_value_heads=1, head_dim=8, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10,
                 norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1, tie_word_embeddings=False,
                 rms_norm_eps=1e-6, rope_parameters=DEFAULT_ROPE, **(SMALL | dict(num_hidden_layers=3)))

# The loss of routers with a coefficient that weighs as much as the cross-entropy.
BALANCED = dict(output_router_logits=True, router_aux_loss_coef=0.5)

LLAMA3_ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
YARN_ROPE = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
YARN_FULL = dict(YARN_ROPE, beta_fast=4.0, beta_slow=1.0, attention_factor=1.3, truncate=False)
ARCHITECTURE = dict(llama="LlamaForCausalLM", mistral="MistralForCausalLM", qwen2="Qwen2ForCausalLM",
                    qwen3="Qwen3ForCausalLM", gemma2="Gemma2ForCausalLM", qwen3_moe="Qwen3MoeForCausalLM")


def v4(config, rope_scaling=None, **extra):
    """The same model as transformers 4 wrote it: rope_theta and rope_scaling apart, torch_dtype."""
    out = {k: v for k, v in config.items() if k != "rope_parameters"}
    out |= dict(architectures=[ARCHITECTURE[config["model_type"]]], hidden_act="silu", attention_dropout=0.0,
                initializer_range=0.02, use_cache=True, rope_theta=config["rope_parameters"]["rope_theta"],
                rope_scaling=rope_scaling, torch_dtype="float32", transformers_version="4.51.3")
    return out | extra


def with_rope(config, rope, **extra):
    return dict(config, rope_parameters=dict(rope_theta=config["rope_parameters"]["rope_theta"]) | rope, **extra)


LONG = (40, 1, 17, 23)
LORA_ALL = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", use_rslora=False)
LORA_RS = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], use_rslora=True)


# Patterns of parameters go by the names that transformers has for them.
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
    Case("lora_qwen3_moe_patterns", QWEN3_MOE, link="qwen3_moe", lora=EXPERTS_PATTERNS),
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
    """Standard normal numbers that depend on the name and the shape only."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(tuple(shape)).astype(np.float32))


@torch.no_grad()
def fill(model, salt, tied=False):
    """Weights large enough that every part of the model matters: activations, scores and logits of order one."""
    for name, p in model.named_parameters():
        z = numbers(f"{salt}/{name}", p.shape)
        if name.endswith("bias"):
            z = 0.3 * z
        elif p.ndim == 1:
            z = (0 if "gemma" in model.config.model_type else 1) + 0.2 * z  # theirs are added to 1
        elif "embed_tokens" in name:
            z = (0.3 if tied else 0.7) * z
        else:
            z = z / p.shape[-1] ** 0.5
        p.copy_(z)


def write_json(path, value, **how):
    Path(path).write_text(json.dumps(value, **({"indent": 2} | how)) + "\n")


def write_rows(path, head, rows):
    """A JSON object whose `rows` are one to a line."""
    lines = ",\n  ".join(json.dumps(r) for r in rows)
    front = "".join(f"{json.dumps(k)}: {json.dumps(v)},\n " for k, v in head.items())
    Path(path).write_text("{" + front + f'"rows": [\n  {lines}]}}\n')


def link(path, target):
    path.symlink_to(os.path.relpath(target, path.parent))


def write_model(case, root):
    """config.json and model*.safetensors of a case."""
    folder = root / case.name
    folder.mkdir(parents=True)
    config = AutoConfig.for_model(**{k: v for k, v in case.config.items() if k != "torch_dtype"})
    if case.link:
        for source in sorted((root / case.link).glob("model*.safetensors*")):
            link(folder / source.name, source)
    else:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        fill(model, case.name, config.tie_word_embeddings)
        model.to(getattr(torch, case.dtype)).save_pretrained(folder, max_shard_size=case.max_shard_size)
        (folder / "generation_config.json").unlink(missing_ok=True)
    if case.raw_config:
        write_json(folder / "config.json", case.config)
    elif case.link:
        config.architectures, config.dtype = [ARCHITECTURE[config.model_type]], case.dtype
        config.save_pretrained(folder)


def labels_for(kind, ids):
    """Rows take turns: loss on all (also position 0), on the tail, on nothing, on alternating runs."""
    if kind == 0:
        return list(ids)
    if kind == 1:
        cut = len(ids) // 2
        return [-100] * cut + list(ids[cut:])
    if kind == 2:
        return [t if (i // 2) % 2 else -100 for i, t in enumerate(ids)]
    return [-100] * len(ids)


def make_rows(case):
    """Ragged rows; the last of a batch with more than three has no target at all."""
    rng = np.random.default_rng(len(case.name) * 1000 + sum(case.lengths))
    rows = []
    for i, n in enumerate(case.lengths):
        ids = rng.integers(3, case.config["vocab_size"], n).tolist()
        last = i + 1 == len(case.lengths) and len(case.lengths) > 3
        rows.append(dict(input_ids=ids, labels=labels_for(3 if last else i % 3, ids)))
    return rows
