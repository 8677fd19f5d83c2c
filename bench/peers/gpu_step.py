#!/usr/bin/env python3
"""Runs the same training step with this program and with PyTorch, transformers and PEFT, from random weights.

    python3 gpu_step.py --qtrain build/gpu/bin/qtrain --case qwen3-0.6b --json step.json
    python3 gpu_step.py --qtrain ... --case llama-3.1-8b --device cpu --small    # checks that everything runs

qwen3-0.6b trains all weights (float32 weights, GEMMs and activations in bfloat16, fused AdamW in PyTorch);
qwen3-8b-adamw8bit trains all weights with 8-bit AdamW (bitsandbytes' in bfloat16 in PyTorch); llama-3.1-8b trains LoRA
r=16 on all linear layers with a bfloat16 base, and the qlora cases with a 4-bit base (nf4, double quantization;
bitsandbytes' in PyTorch). llama-3.1-8b-qlora uses 12 of the 32 layers in both programs, because random weights are
generated on the CPU: its tokens per second are extrapolated to all layers by FLOPs, and are marked so; its ratio and
memory are those of 12 layers. An update has 16,384 tokens in rows of 2,048. Each program has the device to itself; the
median over steps excludes the first ones. If PyTorch runs out of memory, it retries with half the rows in twice as many
micro-batches, recorded in `smaller_batch`. If it cannot run at all, this program is measured alone, which is recorded in
`notes`. The JSON has figures like those of gpu_kernels.py: tokens per second and their ratio, peak memory, and the memory
that is free after step 3: `memory` holds the bytes that were planned, the bytes that this program counts as allocated,
and the bytes that another process sees as used and free on the GPU, before and during the run. Goals in tokens per second
are for one H200, and are marked so on other GPUs. Exits with 0 if this program's steps were measured and are correct.
--needs only checks that the GPU has enough memory for the case: if not, it exits with 77 and prints the reason.
"""

import argparse
import array
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

import gpu_card

# Models as their config.json, and cases: rows per micro-batch, micro-batches per update, steps, qtrain keys, the goals for
# tokens per second (on one H200) and the ratio, the GPU memory that the case needs, and the predicted milliseconds per step
# of all layers. Large models take fewer steps or have fewer layers: their random weights are generated on the CPU, at a
# measured 20 to 25 million per second and core, which takes most of the time; those under an
# adapter are in a file.
TABLE = json.loads((Path(__file__).resolve().parents[1] / "step_cases.json").read_text(encoding="utf-8"))
MODELS, SMALL = TABLE["models"], TABLE["small"]
CASES = {name: case for name, case in TABLE["cases"].items() if "goals" in case}  # others are for CPUs
IMPORTED = "imported"
WARM_UP = 3  # steps: the first chooses kernels, the second captures graphs
SKIPPED = 77  # the usual exit code for skipped tests
GIB = 2**30


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain")
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model of the same family")
    parser.add_argument("--steps", type=int, help="number of steps; default: the case's")
    parser.add_argument("--json")
    parser.add_argument("--needs", action="store_true", help="only check that the GPU has enough memory")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="more keys for qtrain")
    parser.add_argument("--seconds", type=float, default=100,
                        help="time limit of each program; PyTorch's starts with its import")
    parser.add_argument("--torch_only", help=argparse.SUPPRESS)  # the folder, in a separate process
    args = parser.parse_args()
    if not args.qtrain and not args.needs:
        parser.error("--qtrain is needed")
    case = CASES[args.case]
    args.what = case | dict(layers=case.get("layers"), lora=case["config"].get("use_peft", False),
                            four_bit=case["config"].get("load_in_4bit", False),
                            eight_bit_adam=case["config"].get("optim") == "adamw_8bit")
    args.steps = args.steps or args.what["steps"]
    return args


def shapes_of(config):
    """The tensor shapes of a Llama or Qwen3 model."""
    width, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    table = [config["vocab_size"], width]
    shapes = {"model.embed_tokens.weight": table, "model.norm.weight": [width]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = table
    layer = {"input_layernorm": [width], "post_attention_layernorm": [width], "self_attn.q_proj": [q, width],
             "self_attn.k_proj": [kv, width], "self_attn.v_proj": [kv, width], "self_attn.o_proj": [width, q],
             "mlp.gate_proj": [inner, width], "mlp.up_proj": [inner, width], "mlp.down_proj": [width, inner]}
    if config["model_type"] == "qwen3":
        layer |= {"self_attn.q_norm": [head], "self_attn.k_norm": [head]}
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def bfloats(values):
    """Converts numbers to the bytes of bfloat16, rounding toward zero."""
    single = array.array("f", values).tobytes()
    out = bytearray(len(single) // 2)
    out[0::2], out[1::2] = single[2::4], single[3::4]
    return bytes(out)


def write_weights(file, config):
    """Random bfloat16 numbers, for the base weights of an adapter run. They repeat with a prime period."""
    draw, count = random.Random(2), 1_000_003
    block = bfloats(draw.gauss(0, config["initializer_range"]) for _ in range(count))
    header, end = {}, 0
    for name, shape in shapes_of(config).items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        for tensor in header.values():
            size = tensor["data_offsets"][1] - tensor["data_offsets"][0]
            if len(tensor["shape"]) == 1:  # norms
                out.write(bfloats([1.0]) * (size // 2))
                continue
            skip = 2 * draw.randrange(count)
            while size > 0:
                out.write(block[skip:skip + size])
                size, skip = size - min(size, len(block) - skip), 0


def write_case(args, folder):
    """Creates a model folder without weights, and rows of random tokens."""
    config = dict(MODELS[args.what["model"]])
    if args.what["layers"]:
        config["num_hidden_layers"] = args.what["layers"]
    if args.small:
        config |= SMALL
    length = 32 if args.small else args.what["config"]["max_length"]
    rows = args.steps * args.what["batch"] * args.what["accumulation"]
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config, indent=1))
    if args.what["lora"]:
        write_weights(folder / "model/model.safetensors", config)
    draw = random.Random(1)
    with open(folder / "rows.jsonl", "w", encoding="utf-8") as file:
        for _ in range(rows):
            ids = [draw.randrange(2, config["vocab_size"]) for _ in range(length)]
            file.write(json.dumps(dict(input_ids=ids, labels=ids)) + "\n")
    return length


def logged(folder):
    """The metric rows of the steps so far; the last line may be incomplete."""
    file = folder / "out/metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [r for r in rows if "loss" in r]


def looked(look):
    """The GPU memory that the process reported; {} if there is no GPU or it reported none."""
    try:
        return json.loads(look.communicate(timeout=60)[0]) if look else {}
    except (subprocess.SubprocessError, ValueError):
        look.kill()
        return {}


def memory_of(folder, rows, before, after):
    """Bytes planned, allocated after the warm-up, and used on the GPU."""
    plan = json.loads((folder / "out/resolved_config.json").read_text(encoding="utf-8"))["run"]["memory_plan"]
    return dict(planned_bytes=plan["total"], allocated_bytes=round(rows[WARM_UP - 1]["device_mb"] * 2**20),
                used_bytes=after["used_bytes"], free_bytes=after["free_bytes"], total_bytes=after["total_bytes"],
                used_before_bytes=before.get("used_bytes"))


def run_qtrain(args, folder, length):
    """Stops the program after its last step: saving a large model would take longer than all steps."""
    case = args.what
    config = case["config"] | dict(
        model_name_or_path=str(folder / "model"), dataset_name=str(folder / "rows.jsonl"), device=args.device,
        output_dir=str(folder / "out"), bf16=args.device == "cuda", max_length=length, max_steps=args.steps,
        random_init=not case["lora"], per_device_train_batch_size=case["batch"], gradient_accumulation_steps=case["accumulation"],
        learning_rate=1e-4, logging_steps=1, save_strategy="no", seed=1)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    before, look, seen = gpu_card.card() if args.device == "cuda" else {}, None, {}
    begin = time.monotonic()
    process = subprocess.Popen([args.qtrain, str(folder / "config.json"), *args.set], stdin=subprocess.DEVNULL)
    try:
        while len(rows := logged(folder)) < args.steps:
            # runs concurrently; memory does not change any more
            if args.device == "cuda" and not look and len(rows) >= WARM_UP:
                look = subprocess.Popen([sys.executable, gpu_card.__file__], stdout=subprocess.PIPE, text=True,
                                        stdin=subprocess.DEVNULL)
            if process.poll() is not None and len(logged(folder)) < args.steps:
                raise subprocess.SubprocessError(f"ended with {process.returncode}")
            if time.monotonic() - begin > args.seconds:
                raise subprocess.TimeoutExpired(args.qtrain, args.seconds)
            time.sleep(0.05)
        seconds, seen = time.monotonic() - begin, looked(look)
        if process.poll() is not None:  # it may have exited before the GPU was queried
            seen = {}
    finally:
        process.kill()
        process.wait()
    rows = logged(folder)[:args.steps]
    skipped = min(WARM_UP, len(rows) - 1)
    return dict(tokens_per_second=statistics.median(r["tokens_per_second"] for r in rows[skipped:]),
                losses=[r["loss"] for r in rows], memory_bytes=max(r["device_mb"] for r in rows) * 2**20,
                memory=memory_of(folder, rows, before, seen) if seen else None, card=before.get("name"),
                total_seconds=seconds)


def run_torch(args, folder):
    """Runs in a separate process and prints one JSON document. If a micro-batch does not fit in memory, halves it and
    doubles their number, so that an update has the same tokens."""
    import torch
    import transformers  # noqa: F401
    if args.what["lora"]:
        import peft  # noqa: F401
    if args.what["four_bit"] or args.what["eight_bit_adam"]:
        import bitsandbytes  # noqa: F401
    print(IMPORTED, flush=True)

    case, smaller = dict(args.what), []
    while True:
        try:
            result = train_torch(args, folder, case)
            break
        except torch.OutOfMemoryError as problem:
            if case["batch"] % 2:
                raise
            smaller.append(f"out of memory with batch {case['batch']}: {str(problem).splitlines()[0]}")
        case.update(batch=case["batch"] // 2, accumulation=case["accumulation"] * 2)
        gc.collect()  # outside the handler, which keeps the frames of the failed run alive
        if args.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    print(json.dumps(result | dict(batch=case["batch"], accumulation=case["accumulation"], smaller_batch=smaller)))


def quantize(model):
    """Quantizes the linear layers of the blocks one by one, as load_in_4bit does for a folder."""
    import bitsandbytes
    import torch

    for name, layer in list(model.named_modules()):
        if not isinstance(layer, torch.nn.Linear) or name == "lm_head":
            continue
        coded = bitsandbytes.nn.Linear4bit(layer.in_features, layer.out_features, bias=False, quant_type="nf4",
                                           compute_dtype=torch.bfloat16, compress_statistics=True, device="meta")
        coded.weight = bitsandbytes.nn.Params4bit(layer.weight.detach().cpu(), requires_grad=False, quant_type="nf4",
                                                  compress_statistics=True)
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], coded.to(layer.weight.device))
    model.is_loaded_in_4bit = True
    for p in model.parameters():
        p.requires_grad = False


def train_torch(args, folder, case):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    dtype = torch.bfloat16 if case["lora"] or case["eight_bit_adam"] else torch.float32
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "model"), dtype=dtype,
                                                 attn_implementation="sdpa")
    if case["four_bit"]:
        quantize(model)
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear",
                                                 task_type="CAUSAL_LM"))
    if case["eight_bit_adam"]:
        model.gradient_checkpointing_enable()
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    if case["eight_bit_adam"]:
        from bitsandbytes.optim import AdamW8bit
        optimizer = AdamW8bit(trained, lr=1e-4, weight_decay=0.0)
    else:
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
    """For random weights: logits have a variance of the width times the variance of the weights."""
    return math.log(config["vocab_size"]) + config["hidden_size"] * config["initializer_range"] ** 2 / 2


def operations(config, layers, length):
    """FLOPs of the GEMMs and of causal attention, per token of a forward pass."""
    width, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    layer = 2 * width * (2 * q + 2 * kv + 3 * inner) + 2 * length * q
    return layers * layer + 2 * width * config["vocab_size"]


def compare(args, result, config, length):
    case, ours, theirs = args.what, result["ours"], result["torch"]
    right = abs(ours["losses"][0] - expected_loss(config)) < 0.3
    speed = dict(figure=f"{args.case} tokens/s", value=ours["tokens_per_second"], goal=case["goals"]["tokens_per_second"])
    layers, all_layers = config["num_hidden_layers"], MODELS[case["model"]]["num_hidden_layers"]
    if case["layers"] and not args.small:
        speed.update(figure=f"{args.case} tokens/s, from {layers} of {all_layers} layers", measured=speed["value"])
        speed["value"] *= operations(config, layers, length) / operations(config, all_layers, length)
    if args.device == "cuda" and gpu_card.model_of(ours["card"]) != gpu_card.GOALS_OF:
        speed["figure"] += f" (goal of one {gpu_card.GOALS_OF})"
    figures = [speed]
    if memory := ours["memory"]:
        figures.append(dict(figure=f"{args.case} GiB free after step {WARM_UP}, {memory['planned_bytes'] / GIB:.1f} planned",
                            value=memory["free_bytes"] / GIB, goal=None, **memory))
    if theirs:
        right = right and abs(ours["losses"][0] - theirs["losses"][0]) < 0.1
        figures.append(dict(figure=f"{args.case} step / transformers", goal=case["goals"]["ratio"],
                            value=ours["tokens_per_second"] / theirs["tokens_per_second"]))
        if theirs["memory_bytes"]:
            figures.append(dict(figure=f"{args.case} peak memory of transformers / ours", goal=1.0,
                                value=theirs["memory_bytes"] / ours["memory_bytes"]))
    return [f | dict(right=right) for f in figures]


def write(args, result):
    """Writes atomically, since the program may be stopped at any time."""
    if args.json:
        beside = Path(args.json + ".tmp")
        beside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        beside.replace(args.json)


def measured_torch(args, folder):
    """The clock starts with the import of PyTorch and its libraries."""
    process = subprocess.Popen([sys.executable, *sys.argv, "--torch_only", folder], stdout=subprocess.PIPE, text=True,
                               stdin=subprocess.DEVNULL)
    try:
        while (line := process.stdout.readline()) and line.strip() != IMPORTED:
            pass
        text, _ = process.communicate(timeout=args.seconds)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0 or not text.strip():
        raise subprocess.SubprocessError(f"ended with {process.returncode}: see the log")
    return json.loads(text.splitlines()[-1])


def missing_memory(args):
    """Why the GPU cannot run the case, or an empty string."""
    needed, card = args.what.get("needs_bytes"), gpu_card.card() if args.device == "cuda" else {}
    if args.small or not needed or not card or card["total_bytes"] >= needed:
        return ""
    return f"it needs a card of {needed / 1e9:.0f} GB, and {card['name']} has {card['total_bytes'] / 1e9:.0f} GB"


def main():
    args = parse()
    if args.needs:
        reason = missing_memory(args)
        print(reason)
        sys.exit(SKIPPED if reason else 0)
    if args.torch_only:
        return run_torch(args, Path(args.torch_only))
    result = dict(case=args.case, argv=sys.argv, problems=[], notes=[], figures=[], ours=None, torch=None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        length = write_case(args, folder)
        config = json.loads((folder / "model/config.json").read_text())
        try:
            result["ours"] = run_qtrain(args, folder, length)
        except (subprocess.SubprocessError, OSError, ValueError, KeyError) as problem:
            result["problems"].append(f"qtrain: {problem}")
        if result["ours"]:  # PyTorch may use all of the remaining time
            result["figures"] = compare(args, result, config, length)
        write(args, result)
        try:
            result["torch"] = measured_torch(args, name)
        except (subprocess.SubprocessError, OSError, ValueError) as problem:
            result["notes"].append(f"ours alone; torch: {problem}")
    if result["ours"]:
        result["figures"] = compare(args, result, config, length)
    write(args, result)
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["problems"] or not all(f["right"] for f in result["figures"])))


if __name__ == "__main__":
    main()
