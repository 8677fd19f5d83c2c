#!/usr/bin/env python3
"""The same training step by this program and by PyTorch with transformers and PEFT, from random weights.

    python3 gpu_step.py --qtrain build/gpu/bin/qtrain --case qwen3-0.6b --json step.json
    python3 gpu_step.py --qtrain ... --case llama-3.1-8b --device cpu --small    # shows that everything runs

qwen3-0.6b trains all weights (float32 weights, products and activations in bfloat16, fused AdamW on PyTorch's side);
llama-3.1-8b trains LoRA r=16 on all linear layers over a bfloat16 base. 16,384 tokens an update, rows of 2,048. Each
program has the device to itself; the median over steps leaves out the first ones. Where PyTorch runs out of memory it
repeats with half the rows in twice the micro-batches; `smaller_batch` says so. The JSON has figures as
gpu_kernels.py's: tokens a second and their ratio, peak memory.
"""

import argparse
import gc
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = {
    "qwen3-0.6b": dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=151936, hidden_size=1024,
        intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        max_position_embeddings=40960, rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=True),
    "llama-3.1-8b": dict(
        architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=128256, hidden_size=4096,
        intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        max_position_embeddings=131072, rope_theta=500000.0, rms_norm_eps=1e-5, tie_word_embeddings=False)}
COMMON = dict(hidden_act="silu", initializer_range=0.02, attention_bias=False, bos_token_id=0, eos_token_id=1,
              attention_dropout=0.0)
SMALL = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16)
# Rows of a micro-batch, micro-batches of an update, LoRA; what is asked of tokens a second and of the ratio.
CASES = {"qwen3-0.6b": dict(batch=8, accumulation=1, lora=False, tokens_per_second=105e3, ratio=2.2),
         "llama-3.1-8b": dict(batch=4, accumulation=2, lora=True, tokens_per_second=17e3, ratio=2.2)}
WARM_UP = 3  # steps: kernels are chosen in the first, graphs recorded in the second


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model of the same family")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="more keys for qtrain")
    parser.add_argument("--seconds", type=float, default=100, help="most time of either program")
    parser.add_argument("--torch_only", help=argparse.SUPPRESS)  # the folder, in a process of its own
    return parser.parse_args()


def write_case(args, folder):
    """A model folder without weights, and rows of random tokens."""
    config = MODELS[args.case] | COMMON | (SMALL if args.small else {})
    length, rows = 32 if args.small else 2048, args.steps * CASES[args.case]["batch"] * CASES[args.case]["accumulation"]
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config, indent=1))
    draw = random.Random(1)
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as file:
        for _ in range(rows):
            ids = [draw.randrange(2, config["vocab_size"]) for _ in range(length)]
            file.write(json.dumps(dict(input_ids=ids, labels=ids)) + "\n")
    return length


def run_qtrain(args, folder, length):
    case = CASES[args.case]
    config = dict(
        model_name_or_path=str(folder / "model"), dataset_name=str(folder / "rows.jsonl"), device=args.device,
        output_dir=str(folder / "out"), bf16=args.device == "cuda", max_length=length, max_steps=args.steps,
        dtype="bfloat16" if case["lora"] else "float32",
        per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["accumulation"],
        gradient_checkpointing=False, learning_rate=1e-4, logging_steps=1, save_strategy="no", seed=1)
    if case["lora"]:
        config |= dict(use_peft=True, lora_r=16, lora_alpha=32, lora_dropout=0.0, lora_target_modules="all-linear")
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    begin = time.monotonic()
    subprocess.run([args.qtrain, str(folder / "config.json"), *args.set], check=True, timeout=args.seconds)
    rows = [json.loads(line) for line in open(folder / "out/metrics.jsonl", encoding="utf-8")]
    rows = [r for r in rows if "loss" in r]
    results = json.loads((folder / "out/train_results.json").read_text())
    skipped = min(WARM_UP, len(rows) - 1)
    return dict(tokens_per_second=statistics.median(r["tokens_per_second"] for r in rows[skipped:]),
                losses=[r["loss"] for r in rows], memory_bytes=results["memory"]["allocated"],
                total_seconds=time.monotonic() - begin)


def run_torch(args, folder):
    """In a process of its own: prints one JSON document. Where the memory does not hold a micro-batch, halves it and
    doubles their number, so that an update keeps its tokens."""
    import torch

    case, smaller = dict(CASES[args.case]), []
    while True:
        try:
            result = train_torch(args, folder, case)
            break
        except torch.OutOfMemoryError as problem:
            if case["batch"] % 2:
                raise
            smaller.append(f"out of memory with batch {case['batch']}: {str(problem).splitlines()[0]}")
        case.update(batch=case["batch"] // 2, accumulation=case["accumulation"] * 2)
        gc.collect()  # outside of the handler, which keeps the frames of the failed run
        if args.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    print(json.dumps(result | dict(batch=case["batch"], accumulation=case["accumulation"], smaller_batch=smaller)))


def train_torch(args, folder, case):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    dtype = torch.bfloat16 if case["lora"] else torch.float32
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "model"), dtype=dtype,
                                                 attn_implementation="sdpa")
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear",
                                                 task_type="CAUSAL_LM"))
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=args.device == "cuda")
    rows = torch.tensor([json.loads(line)["input_ids"] for line in open(folder / "rows.jsonl", encoding="utf-8")])
    micro_batches = rows.to(args.device).split(case["batch"])
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    seconds, losses = [], []
    for step in range(args.steps):
        begin, total = time.perf_counter(), 0.0
        for i in range(case["accumulation"]):
            ids = micro_batches[step * case["accumulation"] + i]
            with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss / case["accumulation"]
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(total))
        wait()
        seconds.append(time.perf_counter() - begin)
    tokens = rows.numel() / args.steps
    memory = torch.cuda.max_memory_allocated() if args.device == "cuda" else None
    return dict(tokens_per_second=tokens / statistics.median(seconds[min(WARM_UP, args.steps - 1):]), losses=losses,
                memory_bytes=memory, torch=torch.__version__, attention=model.config._attn_implementation)


def expected_loss(config):
    """Of random weights: logits have a variance of the width times that of the weights."""
    return math.log(config["vocab_size"]) + config["hidden_size"] * config["initializer_range"] ** 2 / 2


def compare(args, result, config):
    case, ours, theirs = CASES[args.case], result["ours"], result["torch"]
    right = abs(ours["losses"][0] - expected_loss(config)) < 0.3
    figures = [dict(figure=f"{args.case} tokens/s", value=ours["tokens_per_second"], goal=case["tokens_per_second"])]
    if theirs:
        right = right and abs(ours["losses"][0] - theirs["losses"][0]) < 0.1
        figures.append(dict(figure=f"{args.case} step / transformers", goal=case["ratio"],
                            value=ours["tokens_per_second"] / theirs["tokens_per_second"]))
        if theirs["memory_bytes"]:
            figures.append(dict(figure=f"{args.case} peak memory of transformers / ours", goal=1.0,
                                value=theirs["memory_bytes"] / ours["memory_bytes"]))
    return [f | dict(right=right) for f in figures]


def main():
    args = parse()
    if args.torch_only:
        return run_torch(args, Path(args.torch_only))
    result = dict(case=args.case, argv=sys.argv, problems=[], figures=[], ours=None, torch=None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        length = write_case(args, folder)
        config = json.loads((folder / "model/config.json").read_text())
        try:
            result["ours"] = run_qtrain(args, folder, length)
        except (subprocess.SubprocessError, OSError, ValueError, KeyError) as problem:
            result["problems"].append(f"qtrain: {problem}")
        try:
            done = subprocess.run([sys.executable, *sys.argv, "--torch_only", name], stdout=subprocess.PIPE, check=True,
                                  timeout=args.seconds)
            result["torch"] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.SubprocessError, OSError, ValueError, IndexError) as problem:
            result["problems"].append(f"torch: {problem}")
    if result["ours"]:
        result["figures"] = compare(args, result, config)
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        Path(args.json).write_text(text + "\n")
    sys.exit(bool(result["problems"] or not all(f["right"] for f in result["figures"])))


if __name__ == "__main__":
    main()
