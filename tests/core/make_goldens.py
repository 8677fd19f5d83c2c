"""Writes tests/core/goldens: what Python's json, the safetensors library and gguf-py write for values that the tests know.

Run from the repository root in an environment with gguf, numpy, safetensors, torch and huggingface_hub:
    python tests/core/make_goldens.py
"""
import json
import math
import pathlib
import random
import shutil
import struct

import gguf
import numpy as np
import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).parent / "goldens"


def some_floats():
    rng = random.Random(7)
    fixed = [0.0, -0.0, 1.0, -1.0, 0.1, 1e22, 1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 0.00012345, 5e-324,
             1.7976931348623157e308, 2.2250738585072014e-308, 123456789.125, 1 / 3, 100.0, 1e100, 2e-7, 4.35]
    bits = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(300)]
    scaled = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-8, 20) for _ in range(300)]
    return fixed + [x for x in bits + scaled if math.isfinite(x)]


def json_goldens():
    values = [
        some_floats(),
        {"a": 1, "b": [], "c": {}, "d": [[], {}, [1, [2, {"x": None}]]], "e": True, "f": False},
        ["\"\\/\b\f\n\r\t\x00\x01\x1f\x7f\x80", "é ü ß", "日本語 \U0001f600", "\u2028\u2029", "</script>", ""],
        [0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 10**15],
        {"": "empty key", "é": 1, "\n": 2},
        "top", 1, None, 1.5, [], {},
    ]
    rows = [{"text": json.dumps(v), "plain": json.dumps(v, ensure_ascii=False),
             "indent0": json.dumps(v, ensure_ascii=False, indent=0),
             "indent2": json.dumps(v, ensure_ascii=False, indent=2)} for v in values]
    (OUT / "json_dumps.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def tensors():
    """Element i of a tensor is i - 3, wrapped to its dtype; booleans are i % 3 == 0."""
    dtypes = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
              "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8}
    out = {}
    for name, dtype in dtypes.items():
        out[f"{name}.matrix"] = (torch.arange(6) - 3).to(dtype).reshape(2, 3)
        out[f"{name}.scalar"] = torch.tensor(-3).to(dtype)
        out[f"{name}.empty"] = torch.zeros((0, 5), dtype=dtype)
    out["bool.matrix"] = (torch.arange(6) % 3 == 0).reshape(2, 3)
    out["f32.rank4"] = (torch.arange(24) - 3).to(torch.float32).reshape(1, 2, 3, 4)
    out['a "quoted" näme\n'] = torch.zeros(1)
    return out


def safetensors_goldens():
    save_file(tensors(), OUT / "mixed.safetensors", metadata={"format": "pt"})
    folder = OUT / "sharded"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    state = {f"layers.{i}.{n}": torch.full(s, float(i)) for i in range(3) for n, s in (("w", (4, 8)), ("b", (8,)))}
    state["big"] = torch.full((32, 4), 9.0)
    split = split_torch_state_dict_into_shards(state, filename_pattern="model{suffix}.safetensors", max_shard_size=300)
    for name, keys in split.filename_to_tensors.items():
        save_file({k: state[k] for k in keys}, folder / name, metadata={"format": "pt"})
    index = {"metadata": {"total_size": split.metadata["total_size"]},
             "weight_map": dict(sorted(split.tensor_to_filename.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def gguf_golden():
    writer = gguf.GGUFWriter(OUT / "written.gguf", "llama")
    writer.add_string("text", "a näme\n")
    writer.add_uint32("integer", 4_000_000_000)
    writer.add_float32("number", 1e-5)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_array("texts", ["", "b", "ĠĊ"])
    writer.add_array("integers", [1, -2, 3])
    writer.add_array("numbers", [0.5, -1.5])
    writer.add_tensor("a.matrix", (np.arange(6) - 3).astype(np.float32).reshape(2, 3))
    writer.add_tensor("a.vector", np.arange(5).astype(np.float16))
    writer.add_tensor("a.cube", np.arange(24).astype(np.float32).reshape(2, 3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    json_goldens()
    safetensors_goldens()
    gguf_golden()
