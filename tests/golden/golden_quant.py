"""Base models in bitsandbytes' 4-bit blocks, and the dense models of the same values.

Only for models whose rows are a multiple of the block size (64), or no multiple of 16: for others, the CPU library of
bitsandbytes 0.50 uses scales of the wrong blocks when it dequantizes."""

import json

import bitsandbytes as bnb
import torch
from peft import PeftModel, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import golden_reference as gr

KEYS = ("load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant")


def is_quantized(folder, config):
    return config.get("load_in_4bit") or "quantization_config" in json.loads((folder / "model" / "config.json").read_text())


def load_base(folder, config):
    more = {}
    if config.get("load_in_4bit"):
        more = dict(quantization_config=BitsAndBytesConfig(**{k: config[k] for k in KEYS}))
    return AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager",
                                                device_map="cpu", **more)


def dequantized(model):
    """The same model with dense layers."""
    for name, module in list(model.named_modules()):
        if not isinstance(module, bnb.nn.Linear4bit):
            continue
        dense = torch.nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        dense.weight.data = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
        dense.bias = module.bias
        model.set_submodule(name, dense)
    model.is_quantized = model.is_loaded_in_4bit = False
    return model


def load(folder, config, precision):
    """Adds the run's adapter, as PEFT trains it on a 4-bit base, or in float64 on the dense one."""
    model = load_base(folder, config)
    adapter = folder / config["adapter_name_or_path"]
    if precision == "f32":
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        return PeftModel.from_pretrained(model, adapter, is_trainable=True).train()  # train(), because in eval mode it would pack weights again
    model = dequantized(model)
    gr.widen(model)
    model = PeftModel.from_pretrained(model, adapter, is_trainable=True, autocast_adapter_dtype=False)
    return model.double().eval()


def serialize(folder, keys):
    """Quantizes a run's model in its folder, as save_pretrained writes it."""
    model = load_base(folder, keys | dict(load_in_4bit=True))
    for name in ("config.json", "model.safetensors"):
        (folder / "model" / name).unlink()
    model.save_pretrained(folder / "model")
    (folder / "model" / "generation_config.json").unlink(missing_ok=True)
