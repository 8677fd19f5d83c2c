"""Names of tensors in Hugging Face folders and in GGUF files."""
import functools

import gguf

ARCHITECTURES = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE",
                 "gemma2": "GEMMA2"}
LAYERS = 512  # more than any model has


@functools.cache
def names_of(architecture):
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], LAYERS)


def gguf_name(name: str, model_type: str) -> str:
    """As gguf-py maps it. Experts have one name for all: model.layers.0.mlp.experts.gate_proj.weight."""
    found = names_of(ARCHITECTURES[model_type]).get_name(name, try_suffixes=(".weight", ".bias"))
    assert found, name
    return found
