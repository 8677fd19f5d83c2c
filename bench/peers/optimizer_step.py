#!/usr/bin/env python3
"""Runs a step of 8-bit AdamW on the CPU with bitsandbytes and this program, alternating, and prints the time ratio.

    python optimizer_step.py --qtrain build/release/bin/qtrain [--rounds 5]

Both update as many parameters as `qtrain bench adamw_8bit` does, on all cores. Needs bitsandbytes.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import bitsandbytes
import torch


def theirs(optimizer, steps=3):
    begin = time.perf_counter()
    for _ in range(steps):
        optimizer.step()
    return (time.perf_counter() - begin) / steps


def ours(program, report):
    subprocess.run([program, "bench", "adamw_8bit", "--device", "cpu", "--json", report], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return next(r for r in json.loads(Path(report).read_text())["results"] if r["name"].startswith("adamw_8bit/"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        report = str(Path(folder) / "bench.json")
        count = int(ours(args.qtrain, report)["name"].split("/")[1])
        param = torch.nn.Parameter(torch.randn(count))
        param.grad = torch.randn(count)
        optimizer = bitsandbytes.optim.AdamW8bit([param], lr=1e-6, weight_decay=0.01)
        theirs(optimizer)
        rows = [(theirs(optimizer), ours(args.qtrain, report)["seconds"]) for _ in range(args.rounds)]
    their, our = (statistics.median(column) for column in zip(*rows))
    print(json.dumps(dict(parameters=count, bitsandbytes=bitsandbytes.__version__, bitsandbytes_ms=1e3 * their,
                          qtrain_ms=1e3 * our, ratio=statistics.median(t / o for t, o in rows)), indent=2))


if __name__ == "__main__":
    main()
