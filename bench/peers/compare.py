#!/usr/bin/env python3
"""Runs the same training step with this program and with TRL, alternating on one machine, and prints the speed ratio.

    python compare.py --qtrain build/release/bin/qtrain --model DIR --data rows.jsonl [--steps 6] [--rounds 2]

Tokens per second exclude the first step (startup, compilation and page faults are part of no step). For this program
they are measured from outside: by the time at which each row of metrics.jsonl appears.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="JSONL with `messages`")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with TRL installed")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of TRL's model")
    parser.add_argument("--full", action="store_true", help="all weights instead of LoRA")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="more keys for qtrain")
    return parser.parse_args()


def config(args, folder):
    values = dict(
        model_name_or_path=str(Path(args.model).resolve()), dataset_name=str(Path(args.data).resolve()),
        output_dir=str(folder / "out"), max_steps=args.steps, per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=1, learning_rate=5e-4, lr_scheduler_type="cosine", warmup_steps=0,
        assistant_only_loss=True, packing=args.packing, max_length=1024, dtype="float32", bf16=False,
        gradient_checkpointing=False, train_sampling_strategy="sequential", logging_steps=1, save_strategy="no",
        device="cpu", seed=42)
    if not args.full:
        values |= dict(use_peft=True, lora_r=16, lora_alpha=32, lora_dropout=0.0, lora_target_modules="all-linear")
    path = folder / "config.json"
    path.write_text(json.dumps(values, indent=2))
    return path


def rows_of(path):
    """Complete rows of a file that is still being written."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [r for r in map(json.loads, lines) if "loss" in r]


def watch(process, path):
    """Returns [(time, tokens so far, loss)] as rows appear, and the program's exit code and resources."""
    seen = []
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        now = time.perf_counter()
        seen += [(now, row["num_tokens"], row["loss"]) for row in rows_of(path)[len(seen):]]
        if pid:
            return seen, os.waitstatus_to_exitcode(status), usage
        time.sleep(0.02)


def run_qtrain(args):
    with tempfile.TemporaryDirectory() as name:
        folder, started = Path(name), time.perf_counter()
        with open(folder / "log", "w+") as log:
            process = subprocess.Popen([args.qtrain, config(args, folder), *args.set], stdout=log, stderr=log,
                                       env=os.environ | dict(OMP_NUM_THREADS=str(args.threads)))
            seen, code, usage = watch(process, folder / "out" / "metrics.jsonl")
            if code or len(seen) < 2:
                sys.exit(f"{args.qtrain}: exit {code}, {len(seen)} steps\n{(folder / 'log').read_text()[-2000:]}")
        seconds, tokens = seen[-1][0] - seen[0][0], seen[-1][1] - seen[0][1]
        return dict(peer="qtrain", tokens_per_second_after_first=tokens / seconds, tokens=seen[-1][1],
                    total_seconds=time.perf_counter() - started, peak_rss_mb=usage.ru_maxrss / 1024,
                    losses=[loss for _, _, loss in seen])


def run_trl(args):
    command = [args.python, HERE / "sft_step.py", "--model", args.model, "--data", args.data, "--steps", args.steps,
               "--batch", args.batch, "--threads", args.threads, "--dtype", args.dtype]
    command += ["--full"] * args.full + ["--packing"] * args.packing
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout)


def middle(results, key):
    return statistics.median(r[key] for r in results)


def main():
    args, results = parse(), dict(qtrain=[], trl=[])
    for _ in range(args.rounds):
        results["trl"].append(run_trl(args))
        results["qtrain"].append(run_qtrain(args))
    keys = ("tokens_per_second_after_first", "total_seconds", "peak_rss_mb")
    table = {name: {k: middle(runs, k) for k in keys} for name, runs in results.items()}
    ratio = {k: table["qtrain"][k] / table["trl"][k] for k in keys}
    print(json.dumps(dict(median=table, qtrain_over_trl=ratio, runs=results), indent=1))
    for name, row in table.items():
        speed, total, memory = (row[k] for k in keys)
        print(f"{name:7} {speed:8.1f} tokens/s  {total:7.1f} s in all  {memory:7.0f} MB", file=sys.stderr)
    print(f"ratio   {ratio[keys[0]]:8.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
