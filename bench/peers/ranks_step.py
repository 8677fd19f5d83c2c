#!/usr/bin/env python3
"""Trains all weights with several ranks on the CPU: with this program, and with transformers and FSDP under torchrun.

Usage: ranks_step.py --qtrain PROGRAM [--ranks 2] [--steps 6] [--rows 8] [--length 64] [--rounds 3] [--layers 24 ...]

Both train the same Qwen3 model (random weights; --layers, --hidden and --vocab give its shape) in float32 with AdamW on
the same rows. Each rank has an equal share of the CPU's cores. Three ways are compared: one rank with all cores, data
parallelism, and sharded optimizer states, gradients and weights (zero_stage 3; FSDP2's fully_shard of each block and the
model). For each it prints the median over alternating rounds of the tokens per second without the first step, and the
largest resident memory of a rank, as one JSON document. Needs torch and transformers; quote ratios, with the CPU.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = {"one": None, "data_parallel": 0, "divided": 3}  # with the zero_stage


def shape_of(args):
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": args.vocab,
        "hidden_size": args.hidden, "intermediate_size": 3 * args.hidden, "num_hidden_layers": args.layers,
        "num_attention_heads": args.hidden // 64, "num_key_value_heads": max(1, args.hidden // 128), "head_dim": 64,
        "hidden_act": "silu", "attention_bias": False, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "initializer_range": 0.02, "tie_word_embeddings": False, "bos_token_id": 1,
        "eos_token_id": 2, "torch_dtype": "float32",
    }


def write_rows(path, args):
    random.seed(1)
    with open(path, "w") as out:
        for _ in range(args.rows * args.steps):
            ids = [random.randrange(3, args.vocab) for _ in range(args.length)]
            out.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")


def run_ours(folder, way, args):
    ranks = 1 if WAYS[way] is None else args.ranks
    config = {
        "model_name_or_path": str(folder / "model"), "random_init": True, "dataset_name": str(folder / "rows.jsonl"),
        "output_dir": str(folder / "out"), "device": "cpu", "nproc": ranks, "zero_stage": WAYS[way] or 0,
        "per_device_train_batch_size": args.rows // ranks, "gradient_accumulation_steps": 1, "max_steps": args.steps,
        "learning_rate": 1e-4, "optim": "adamw_torch", "dtype": "float32", "bf16": False, "max_length": None,
        "gradient_checkpointing": args.gradient_checkpointing, "logging_steps": 1, "save_strategy": "no", "report_to": "none",
        "train_sampling_strategy": "sequential", "disable_tqdm": True, "overlap_comm": not args.one_block,
    }
    (folder / "config.json").write_text(json.dumps(config))
    subprocess.run(["rm", "-rf", str(folder / "out")], check=True)
    subprocess.run([args.qtrain, str(folder / "config.json"), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(folder / "out" / "metrics.jsonl")]
    steps = [row for row in rows if "loss" in row]
    seconds = steps[-1]["time"] - steps[0]["time"]
    totals = json.loads((folder / "out" / "train_results.json").read_text())
    return {"tokens_per_second": args.rows * args.length * (len(steps) - 1) / seconds,
            "peak_mb": totals["peak_rss_mb"], "loss": steps[0]["loss"]}


def run_theirs(folder, way, args):
    ranks = 1 if WAYS[way] is None else args.ranks
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", __file__,
               "--rank-of", way, "--folder", str(folder), "--rows", str(args.rows), "--steps", str(args.steps)]
    if args.gradient_checkpointing:
        command.append("--gradient_checkpointing")
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, cores // ranks))}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def rank(args):
    """Runs one rank of transformers."""
    import resource

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = pathlib.Path(args.folder)
    dist.init_process_group("gloo")
    me, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    with torch.device("meta"):  # so that no rank ever holds the whole model
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "model"), dtype=torch.float32)
    if args.rank_of == "divided":
        for block in model.model.layers:
            fully_shard(block)
        fully_shard(model)
    model.to_empty(device="cpu")
    for name, weight in model.named_parameters():
        torch.nn.init.ones_(weight) if "norm" in name else torch.nn.init.normal_(weight, std=0.02)
    model.model.rotary_emb.__init__(model.config)  # its buffers are not parameters
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if args.rank_of == "data_parallel":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = [json.loads(line)["input_ids"] for line in open(folder / "rows.jsonl")]
    times, first_loss = [], None
    for step in range(args.steps):
        of_step = rows[step * args.rows:(step + 1) * args.rows]
        ids = torch.tensor(of_step[me::ranks])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        first_loss = first_loss if first_loss is not None else loss.item()
        dist.barrier()
        times.append(time.time())
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0])
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if me == 0:
        tokens = args.rows * len(rows[0]) * (args.steps - 1)
        print(json.dumps({"tokens_per_second": tokens / (times[-1] - times[0]), "peak_mb": peak.item(),
                          "loss": first_loss}))
    dist.destroy_process_group()


def summary(results):
    return {key: round(statistics.median(r[key] for r in results), 1) for key in ("tokens_per_second", "peak_mb")}


def compare(args):
    runs = {(program, way): [] for program in ("qtrain", "transformers") for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(shape_of(args)))
        write_rows(folder / "rows.jsonl", args)
        for _ in range(args.rounds):
            for way in WAYS:
                runs["qtrain", way].append(run_ours(folder, way, args))
                if not args.alone:
                    runs["transformers", way].append(run_theirs(folder, way, args))
    programs = ["qtrain"] if args.alone else ["qtrain", "transformers"]
    out = {program: {way: summary(runs[program, way]) for way in WAYS} for program in programs}
    for ways in out.values():
        for way in ("data_parallel", "divided"):
            ways[way]["efficiency"] = round(ways[way]["tokens_per_second"] / ways["one"]["tokens_per_second"], 3)
        ways["divided"]["memory_of_data_parallel"] = round(
            ways["divided"]["peak_mb"] / ways["data_parallel"]["peak_mb"], 3)
    print(json.dumps(out, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain")
    for name, value in (("ranks", 2), ("steps", 6), ("rows", 8), ("length", 64), ("rounds", 3), ("layers", 24),
                        ("hidden", 512), ("vocab", 2048)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--alone", action="store_true", help="this program only")
    parser.add_argument("--one_block", action="store_true", help="with overlap_comm=false")
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    rank(args) if args.rank_of else compare(args)


if __name__ == "__main__":
    main()
