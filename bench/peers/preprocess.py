#!/usr/bin/env python3
"""Prepares chat rows with this program and with TRL (`datasets.map` in all processes), alternating; prints the ratios.

    python package_rows.py 200000 rows.jsonl
    python preprocess.py --qtrain ../../build/release/bin/qtrain --model DIR --data rows.jsonl [--packing] [--rounds 2]

Each side starts cold: a new process, no cache. `seconds` is the time to prepare the rows, excluding the startup of Python
and its libraries; `peak_mb` is the sampled sum over the processes of a side (proportional set size).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--trl", help=argparse.SUPPRESS)  # the folder of a run of this script as the TRL side
    return parser.parse_args()


def trl_side(args):
    from datasets import load_dataset
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8,
                                         num_hidden_layers=1, num_attention_heads=1))
    config = SFTConfig(output_dir=args.trl, max_length=1024, packing=args.packing, use_cpu=True, bf16=False,
                       report_to="none", dataset_num_proc=args.processes, disable_tqdm=True)
    begin = time.perf_counter()
    rows = load_dataset("json", data_files=args.data, split="train", cache_dir=args.trl)
    trainer = SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
    seconds = time.perf_counter() - begin
    data = trainer.train_dataset
    tokens = sum(len(ids) for ids in data["input_ids"])
    print(json.dumps({"seconds": seconds, "rows": len(data), "tokens": tokens}))


def memory_mb(pid):
    """Proportional set size of a process and all its descendants."""
    total = 0
    try:
        for line in open(f"/proc/{pid}/smaps_rollup"):
            if line.startswith("Pss:"):
                total += int(line.split()[1]) / 1024
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in open(f"/proc/{pid}/task/{task}/children").read().split():
                total += memory_mb(child)
    except OSError:
        pass
    return total


def run(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peak = [0.0]

    def watch():
        while process.poll() is None:
            peak[0] = max(peak[0], memory_mb(process.pid))
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = process.communicate()[0]
    watcher.join()
    if process.returncode:
        sys.exit(f"{command[0]} failed with {process.returncode}")
    return json.loads(out) | {"peak_mb": peak[0]}


def ours(args, folder):
    config = folder / "config.json"
    config.write_text(json.dumps(dict(model_name_or_path=args.model, dataset_name=args.data, max_length=1024,
                                      packing=args.packing, threads=args.processes,
                                      token_cache_dir=str(folder / "cache"))))
    result = run([args.qtrain, "preprocess", str(config), "--json", "--quiet"])
    return {k: result[k] for k in ("seconds", "rows", "tokens", "peak_mb")}


def theirs(args, folder):
    command = [sys.executable, __file__, "--model", args.model, "--data", args.data, "--trl", str(folder / "trl"),
               "--processes", str(args.processes)]
    return run(command + ["--packing"] * args.packing)


def main():
    args = parse()
    if args.trl:
        return trl_side(args)
    sides = {"qtrain": [], "trl": []}
    for _ in range(args.rounds):
        for name, side in (("qtrain", ours), ("trl", theirs)):
            with tempfile.TemporaryDirectory() as folder:
                sides[name].append(side(args, Path(folder)))
            print(name, sides[name][-1], file=sys.stderr)
    median = {name: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for name, rows in sides.items()}
    print(json.dumps({"processes": args.processes, "packing": args.packing, "median": median,
                      "speed_ratio": median["trl"]["seconds"] / median["qtrain"]["seconds"],
                      "memory_ratio": median["qtrain"]["peak_mb"] / median["trl"]["peak_mb"]}, indent=2))


if __name__ == "__main__":
    main()
