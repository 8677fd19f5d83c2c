#!/usr/bin/env python3
"""Compares the simulated schedule of sharded runs with runs of several ranks on this machine.

    bench/overlap_schedule.py --qtrain build/release/bin/qtrain [--ranks 2,3,4] [--stages 0,1,2,3] [--updates 20]

Trains a small model with profile=true for each number of ranks and zero_stage, passes the timelines to
`qtrain estimate --trace`, and prints the time per update that it derives from the durations of blocks and exchanges next
to the measured one (medians over updates and ranks). Standard library only. With --keep DIR the runs are kept there.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def write_model(folder, args):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048, "hidden_size": args.width,
        "intermediate_size": 3 * args.width, "num_hidden_layers": args.layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32"}))


def write_rows(file, count=4096, length=256):
    numbers = random.Random(1)
    with open(file, "w") as rows:
        for _ in range(count):
            rows.write(json.dumps({"input_ids": [numbers.randrange(3, 2048) for _ in range(length)]}) + "\n")


def config_of(folder, ranks, stage, args):
    return {"model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "rows.jsonl"),
            "output_dir": str(folder / f"ranks-{ranks}-stage-{stage}"), "random_init": True, "device": "cpu",
            "bf16": False, "max_length": 256, "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": args.accumulation, "max_steps": args.updates, "save_strategy": "no",
            "logging_steps": args.updates, "learning_rate": 1e-4, "nproc": ranks, "threads": args.threads,
            "zero_stage": stage, "profile": True, "gradient_checkpointing": False}


def say(*words):
    print(*words, flush=True)


def compare(folder, ranks, stage, args):
    config = folder / f"ranks-{ranks}-stage-{stage}.json"
    config.write_text(json.dumps(config_of(folder, ranks, stage, args)))
    done = subprocess.run([args.qtrain, config, "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the run of {ranks} ranks with zero_stage {stage} failed:\n{done.stderr}")
    output = config.with_suffix("")
    told = subprocess.run([args.qtrain, "estimate", config, "--trace", output, "--json", "--quiet"], capture_output=True,
                          text=True)
    if told.returncode != 0:
        sys.exit(f"estimate --trace failed:\n{told.stderr}")
    return json.loads(told.stdout)["timeline"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--stages", default="0,1,2,3")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.keep or Path(temporary)).absolute()
        write_model(folder / "model", args)
        write_rows(folder / "rows.jsonl")
        say(f"{'ranks':>5} {'stage':>5} {'measured':>11} {'predicted':>11} {'computing':>11} {'waiting':>11} "
            f"{'error':>8}")
        errors = []
        for ranks in map(int, args.ranks.split(",")):
            for stage in map(int, args.stages.split(",")):
                t = compare(folder, ranks, stage, args)
                errors.append(t["predicted"] / t["measured"] - 1)
                times = [t[name] for name in ("measured", "predicted", "computing", "waiting")]
                say(f"{ranks:>5} {stage:>5} " + " ".join(f"{1e3 * x:>8.1f} ms" for x in times) +
                    f" {100 * errors[-1]:>+6.1f} %")
        say(f"error of the prediction: median {100 * statistics.median(errors):+.1f} %, "
            f"largest {100 * max(errors, key=abs):+.1f} %")


if __name__ == "__main__":
    main()
