#!/usr/bin/env python3
"""Goldens of block-quantized tensors and of a quantized model, made by bitsandbytes on the CPU:

    python tests/quant/make_bnb_goldens.py        # writes tests/quant/goldens/bnb*

bnb.safetensors has, for each case, the tensor `x` (unless it is the sequence that `uniform` makes, which the test makes
too) and what became of it. bnb_model/ is a tiny model in bfloat16, bnb_model_*/ what transformers saves of it. Maps and
offsets depend in their last bits on the processor: make them on one with AVX2 or AVX-512.
"""

import shutil
from pathlib import Path

import bitsandbytes.functional as F
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

GOLDENS = Path(__file__).resolve().parent / "goldens"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def uniform(n):
    """n values in (-1, 1) with scales from 2^-7 to 1 that change every 50 elements."""
    i = np.arange(n, dtype=np.uint32)
    word = i * np.uint32(2654435761) + np.uint32(97)
    word ^= word >> np.uint32(15)
    word *= np.uint32(2246822519)
    word ^= word >> np.uint32(13)
    value = (word >> np.uint32(8)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    return torch.from_numpy(np.ldexp(value, -((i // 50) % 8).astype(np.int32)).astype(np.float32))


def special():
    """Blocks of 64 with difficult values: zeros, subnormal numbers, the largest ones, both zeros, single values."""
    x = torch.zeros(9, 64)
    x[1] = torch.linspace(-1, 1, 64) * 1e-41
    x[2] = torch.linspace(-1, 1, 64) * 3.4e38
    x[3, ::2] = -0.0
    x[4, 5] = -7
    x[5] = torch.linspace(-1e-38, 2e-38, 64)
    x[6] = torch.tensor(F.get_4bit_type("nf4", device="cpu").tolist() * 4)
    x[7] = torch.tensor(F.get_4bit_type("fp4", device="cpu").tolist() * 4)
    bounds = F.get_4bit_type("nf4", device="cpu")
    x[8, :15] = (bounds[1:] + bounds[:-1]) / 2
    x[8, 15:31] = torch.nextafter(x[8, :16], torch.tensor(2.0))
    x[8, 63] = 1
    return torch.cat([x.flatten(), torch.zeros(7)])  # the last block is short and zero


def midpoints(quant_type):
    """A full block of 32 and a short one whose codes depend on whether values are divided by the scale or multiplied by
    its inverse."""
    code = F.get_4bit_type(quant_type, device="cpu").sort().values
    bounds = (code[1:] + code[:-1]) / 2
    for seed in range(10000):
        scale = torch.rand(1, generator=torch.Generator().manual_seed(seed)) + 0.1
        x = torch.cat([bounds * scale, scale])
        if not torch.equal(torch.bucketize(x / scale, bounds), torch.bucketize(x * (1 / scale), bounds)):
            return torch.cat([x, -x, x])


def store(out, name, x, blocksize, quant_type, nested, keep):
    codes, state = F.quantize_4bit(x, blocksize=blocksize, quant_type=quant_type, compress_statistics=nested)
    if keep:
        out[f"{name}.x"] = x
    out[f"{name}.codes"] = codes.flatten()
    for key, value in state.as_dict(packed=True).items():
        if key not in ("quant_map", "nested_quant_map"):
            out[f"{name}.{key}"] = value
    if keep:
        for label, dtype in DTYPES.items():
            state.dtype = dtype
            state.shape = torch.Size([x.numel()])
            out[f"{name}.y.{label}"] = F.dequantize_4bit(codes, state).flatten()


def tensors():
    out = {"map.signed": F.create_dynamic_map(True), "map.unsigned": F.create_dynamic_map(False)}
    for quant_type in ("nf4", "fp4"):
        out[f"map.{quant_type}"] = F.get_4bit_type(quant_type, device="cpu")
        store(out, f"special.{quant_type}", special(), 64, quant_type, False, True)
        store(out, f"midpoints.{quant_type}", midpoints(quant_type), 32, quant_type, False, True)
        for label, dtype in DTYPES.items():
            store(out, f"small.{quant_type}.{label}", uniform(333).to(dtype), 32, quant_type, False, True)
        for blocksize in (32, 64, 128, 256, 512, 1024, 2048, 4096):
            n = 2 * blocksize + 77
            store(out, f"size.{quant_type}.{blocksize}", uniform(n).to(torch.bfloat16), blocksize, quant_type, False,
                  False)
    store(out, "nested", uniform(64 * 300 + 10).to(torch.bfloat16), 64, "nf4", True, False)
    eight = torch.cat([uniform(700), torch.zeros(256), torch.full((3,), 1e-30)])
    codes, state = F.quantize_blockwise(eight, blocksize=256)
    out |= {"eight.x": eight, "eight.codes": codes, "eight.absmax": state.absmax,
            "eight.y": F.dequantize_blockwise(codes, state)}
    rows = uniform(5 * 37).reshape(5, 37)
    quantized, scale, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(rows.half(), 0.0)
    y = F.int8_vectorwise_dequant(quantized, scale)
    out |= {"rows.codes": quantized, "rows.scale": scale, "rows.f32": y, "rows.bf16": y.bfloat16()}
    save_file({k: v.contiguous().clone() for k, v in out.items()}, GOLDENS / "bnb.safetensors")


def tiny_model(folder):
    torch.manual_seed(5)
    config = LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=16, vocab_size=40, max_position_embeddings=64,
                         tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def models():
    source = GOLDENS / "bnb_model"
    for folder in GOLDENS.glob("bnb_model*"):
        shutil.rmtree(folder)
    tiny_model(source)
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    configs = {"nf4": BitsAndBytesConfig(**four, bnb_4bit_compute_dtype=torch.bfloat16),
               "fp4": BitsAndBytesConfig(load_in_4bit=True, llm_int8_skip_modules=["lm_head", "down_proj"]),
               "int8": BitsAndBytesConfig(load_in_8bit=True)}
    for name, config in configs.items():
        model = AutoModelForCausalLM.from_pretrained(source, quantization_config=config, dtype=torch.bfloat16,
                                                     device_map="cpu")
        model.save_pretrained(GOLDENS / f"bnb_model_{name}")
    for folder in GOLDENS.glob("bnb_model*"):
        (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    tensors()
    models()
