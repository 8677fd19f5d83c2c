#!/usr/bin/env python3
"""Compares 4-bit matrices on the CPU with bitsandbytes, alternating in one process with the same number of threads.

    python quantize_cpu.py --library build/bench/lib/libqtrain_ops.so [--rounds 15]

Needs bitsandbytes. Results are first compared bit by bit. `ratio` is bitsandbytes' time over this program's, the median
over the rounds. Dequantization is measured twice: `kernel` calls the functions of both libraries on existing memory;
`call` compares dequantize_4bit, which allocates a new tensor each time, with this program, which reuses the memory.
"""

import argparse
import ctypes
import json
import os
import statistics
import time

import bitsandbytes
import bitsandbytes.functional as bnb
import torch
from bitsandbytes.cextension import lib
from gpu_kernels import Ops

SHAPES = [(576, 576), (1536, 576), (2048, 2048), (4096, 4096), (14336, 4096)]
BLOCKSIZE = 64


def seconds(run, repeats):
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def measure(name, variants, args):
    repeats = max(1, int(0.02 / seconds(variants["qtrain"], 2)))
    times = {key: [] for key in variants}
    for _ in range(args.rounds):
        for key, run in variants.items():
            times[key].append(seconds(run, repeats))
    ratio = statistics.median(t / o for t, o in zip(times["bitsandbytes"], times["qtrain"]))
    row = {key: round(1e6 * statistics.median(value), 1) for key, value in times.items()}
    print(json.dumps(dict(case=name, microseconds=row, ratio=round(ratio, 2))), flush=True)


def cases(ops, shape, dtype, args):
    x = torch.randn(shape).to(dtype)
    codes, state = bnb.quantize_4bit(x, blocksize=BLOCKSIZE, quant_type="nf4")
    our_codes, our_absmax = torch.empty_like(codes), torch.empty_like(state.absmax)
    y = torch.empty_like(x)
    dequantize = ops.prepare("dequantize4", [y, codes, state.absmax, state.code], [BLOCKSIZE])
    quantize = ops.prepare("quantize4", [our_codes, our_absmax, x], [BLOCKSIZE, 0])
    dequantize()
    quantize()
    assert torch.equal(y, bnb.dequantize_4bit(codes, state)), "dequantized values differ"
    assert torch.equal(codes, our_codes) and torch.equal(state.absmax, our_absmax), "codes or scales differ"
    suffix = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    function = getattr(lib, f"cdequantize_blockwise_cpu_nf4_{suffix}")
    sizes = [ctypes.c_longlong(n) for n in (BLOCKSIZE, *shape)]
    theirs = torch.empty_like(x)

    def kernel():
        function(bnb.get_ptr(codes), bnb.get_ptr(state.absmax), bnb.get_ptr(theirs), *sizes)

    size = f"{shape[0]}x{shape[1]}/{suffix}"
    measure(f"dequantize_nf4/kernel/{size}", {"bitsandbytes": kernel, "qtrain": dequantize}, args)
    measure(f"dequantize_nf4/call/{size}",
            {"bitsandbytes": lambda: bnb.dequantize_4bit(codes, state), "qtrain": dequantize}, args)
    if shape[0] <= 4096:
        measure(f"quantize_nf4/{size}",
                {"bitsandbytes": lambda: bnb.quantize_4bit(x, blocksize=BLOCKSIZE, quant_type="nf4"),
                 "qtrain": quantize}, args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    print(json.dumps(dict(bitsandbytes=bitsandbytes.__version__, torch=torch.__version__, threads=os.cpu_count(),
                          units=torch.backends.cpu.get_cpu_capability())))
    ops = Ops(args.library, "cpu")
    for shape in SHAPES:
        for dtype in (torch.bfloat16, torch.float32):
            cases(ops, shape, dtype, args)


if __name__ == "__main__":
    main()
