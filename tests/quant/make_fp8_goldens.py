#!/usr/bin/env python3
"""Goldens of models in FP8, made by transformers and compressed-tensors on the CPU:

    pip install compressed-tensors==0.20.0
    python tests/quant/make_fp8_goldens.py        # writes tests/quant/goldens/fp8*

fp8_block/ is bnb_model/ as transformers stores it in FP8 with one scale per block, and fp8_row/ as compressed-tensors
stores it with one scale per row. expected.safetensors has some of their matrices as the libraries expand them.
"""

import json
import shutil
from pathlib import Path

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import Fp8Quantize

GOLDENS = Path(__file__).resolve().parent / "goldens"
SOURCE = GOLDENS / "bnb_model"
BLOCK = (16, 16)
KEPT = ["model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"]


class Quantizer:
    quantization_config = FineGrainedFP8Config(weight_block_size=BLOCK)


def write_config(folder, quantization):
    config = json.loads((SOURCE / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def block():
    folder = GOLDENS / "fp8_block"
    folder.mkdir()
    tensors = {}
    for name, tensor in load_file(SOURCE / "model.safetensors").items():
        tensors |= Fp8Quantize(Quantizer())._quantize_one(name, tensor) if "_proj" in name else {name: tensor}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantization = FineGrainedFP8Config(weight_block_size=BLOCK).to_dict()
    write_config(folder, json.loads(json.dumps(quantization, default=lambda value: value.value)))
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)  # on a CPU, this expands the weights


def row():
    folder = GOLDENS / "fp8_row"
    model = AutoModelForCausalLM.from_pretrained(SOURCE, dtype=torch.bfloat16)
    scheme = preset_name_to_scheme("FP8_DYNAMIC", targets=["Linear"])
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"]))
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data.copy_(module.weight.abs().amax(1, keepdim=True) / 448)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    write_config(folder, json.loads((folder / "config.json").read_text())["quantization_config"])
    (folder / "generation_config.json").unlink(missing_ok=True)
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=CompressedTensorsConfig(dequantize=True)
    )


def main():
    for old in GOLDENS.glob("fp8_*"):
        shutil.rmtree(old)
    for make in (block, row):
        dense = make().state_dict()
        expected = {name: dense[name].contiguous() for name in KEPT}
        assert all(t.dtype == torch.bfloat16 for t in expected.values())
        save_file(expected, GOLDENS / f"fp8_{make.__name__}" / "expected.safetensors")


if __name__ == "__main__":
    main()
