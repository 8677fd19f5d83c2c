"""Names of tensors in Hugging Face folders and in GGUF files."""
import functools

import gguf

ARCHITECTURES = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE",
                 "gemma2": "GEMMA2", "gemma3_text": "GEMMA3", "smollm3": "SMOLLM3", "olmo2": "OLMO2",
                 "granite": "GRANITE", "mixtral": "LLAMA", "qwen2_moe": "QWEN2MOE", "olmo3": "OLMO2",
                 "exaone4": "EXAONE4", "olmoe": "OLMOE", "hunyuan_v1_dense": "HUNYUAN_DENSE"}
INTERLEAVED = ("llama", "mistral", "smollm3", "granite", "mixtral")  # the rows of rotated projections
OFFSET_NORMS = ("gemma2", "gemma3_text")  # families that add 1 to their norm weights
MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
LAYERS = 512  # more than any model has


@functools.cache
def names_of(model_type: str):
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH[ARCHITECTURES[model_type]], LAYERS)


def gguf_name(name: str, model_type: str) -> str:
    """The name according to gguf-py. All experts have the same name: model.layers.0.mlp.experts.gate_proj.weight, or
    for Mixtral the intermediate name in llama.cpp's converter."""
    if model_type == "mixtral":
        name = name.replace("model.layers.", "layers.").replace(".block_sparse_moe.experts.", ".feed_forward.experts.") \
            if ".experts." in name else name
    found = names_of(model_type).get_name(name, try_suffixes=(".weight", ".bias"))
    assert found, name
    return found


def in_folders(name: str, model_type: str) -> str:
    """The name of a transformers parameter in published folders."""
    if model_type != "mixtral" or ".mlp." not in name:
        return name
    for of_others, own in MIXTRAL.items():
        name = name.replace(f".{of_others}.", f".{own}.")
    return name.replace(".mlp.", ".block_sparse_moe.")
