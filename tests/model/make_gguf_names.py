"""Writes goldens/gguf_names.json: for each model type that llama.cpp knows, the tensors of its layer 1 in the goldens of
tests/golden and what gguf-py calls them. Needs the packages of tests/golden/requirements.txt and gguf:
python make_gguf_names.py"""

import json
import pathlib
import re

import gguf
from safetensors import safe_open

HERE = pathlib.Path(__file__).parent
GOLDENS = HERE.parent / "golden" / "data"
# model type: its architecture in gguf-py, and a golden
FAMILIES = {
    "llama": ("LLAMA", "llama_bias"), "qwen2": ("QWEN2", "qwen2_full"), "qwen3": ("QWEN3", "qwen3_hd8"),
    "smollm3": ("SMOLLM3", "smollm3"), "olmo2": ("OLMO2", "olmo2"), "granite": ("GRANITE", "granite"),
    "gemma2": ("GEMMA2", "gemma2"), "gemma3_text": ("GEMMA3", "gemma3"), "mixtral": ("LLAMA", "mixtral"),
    "qwen2_moe": ("QWEN2MOE", "qwen2_moe"), "olmo3": ("OLMO2", "olmo3"), "exaone4": ("EXAONE4", "exaone4"),
    "hunyuan_v1_dense": ("HUNYUAN_DENSE", "hunyuan"), "olmoe": ("OLMOE", "olmoe"),
}
PREFIX = "model.layers.1."


def names(architecture, golden):
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], 2)
    found = {}
    with safe_open(GOLDENS / golden / "model.safetensors", "pt") as tensors:
        for name in tensors.keys():
            name = re.sub(r"\.experts\.\d+\.", ".experts.", name)  # one tensor for all
            if name.startswith(PREFIX):
                # llama.cpp's converter looks up merged experts under this name.
                source = name.replace("model.layers.1.block_sparse_moe.experts", "layers.1.feed_forward.experts")
                known = table.get_name(source, try_suffixes=(".weight", ".bias"))
                assert known, source
                found[name.removeprefix(PREFIX)] = known.removeprefix("blk.1.")
    return found


def main():
    lines = (f"{json.dumps(family)}: {json.dumps(names(*of), sort_keys=True)}" for family, of in FAMILIES.items())
    (HERE / "goldens" / "gguf_names.json").write_text("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
