"""Writes tests/quant/goldens/gguf_blocks.safetensors: random blocks of every GGUF type and gguf-py's values for them;
and gguf_quantized.safetensors: values and the blocks that gguf-py packs them into.

Run from the repository root in an environment with gguf, numpy and safetensors:
    python tests/quant/make_goldens.py
"""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGML_QUANT_SIZES, dequantize, quantize
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "goldens"
TYPES = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K]
# Byte offsets of the f16 scales of a block: random bytes there would make most values NaN or huge.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208]}


def blocks_of(kind, rng):
    values, size = GGML_QUANT_SIZES[kind]
    count = 512 // values if values > 1 else 64
    if kind == T.F32:
        return rng.standard_normal(count).astype(np.float32).view(np.uint8).reshape(1, -1)
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in SCALES.get(kind, []):
        scale = rng.standard_normal(count).astype(np.float16) * 2.0 ** rng.integers(-20, 3, count)
        blocks[:, at:at + 2] = scale.astype(np.float16).view(np.uint8).reshape(count, 2)
    if kind in (T.F16, T.BF16):  # no NaN: it compares unequal to itself
        bits = blocks.reshape(-1).view(np.uint16)
        exponent = 0x7C00 if kind == T.F16 else 0x7F80
        bits[(bits & exponent) == exponent] &= 0xBFFF
    return blocks.reshape(1, -1)


def values_to_pack(rng):
    """Blocks of 32: ordinary, of every size that f16 scales reach, with ties, equal extremes, zeros, denormals."""
    rows = [rng.standard_normal(32) * 2.0 ** e for e in list(range(-30, 18, 3)) + [0] * 40]
    rows += [rng.integers(-127, 128, 32) / 2, rng.integers(-8, 9, 32) / 2, rng.integers(-16, 17, 32) / 2]  # ties
    rows += [np.where(np.arange(32) % 2, 1.0, -1.0), np.full(32, -3.0), np.zeros(32), -np.zeros(32)]
    rows += [np.full(32, 1e-40), np.where(np.arange(32) == 7, 1e-42, 0), np.eye(32)[31] * 60000]
    return np.stack(rows).astype(np.float32)


def quantized_goldens():
    values = values_to_pack(np.random.default_rng(12))
    tensors = {"values": values}
    for kind in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q5_0):
        with np.errstate(invalid="ignore", over="ignore"):
            tensors[kind.name] = np.ascontiguousarray(quantize(values, kind)).view(np.uint8).reshape(-1)
    save_file(tensors, OUT / "gguf_quantized.safetensors")


def main():
    rng = np.random.default_rng(11)
    tensors = {}
    for kind in TYPES:
        blocks = blocks_of(kind, rng)
        typed = blocks.view(np.float32) if kind == T.F32 else blocks.view(np.float16) if kind == T.F16 else blocks
        values = np.asarray(dequantize(typed, kind), dtype=np.float32).reshape(-1)
        assert np.isfinite(values).all(), kind
        tensors[f"{kind.name}.blocks"] = blocks.reshape(-1)
        tensors[f"{kind.name}.values"] = values
    OUT.mkdir(exist_ok=True)
    save_file(tensors, OUT / "gguf_blocks.safetensors")
    quantized_goldens()


if __name__ == "__main__":
    main()
