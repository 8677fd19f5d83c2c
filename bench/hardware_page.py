#!/usr/bin/env python3
"""Writes docs/hardware.md: what common models need, and which GPUs they fit on, by `qtrain estimate --cards`.

    bench/hardware_page.py --qtrain build/cpu/bin/qtrain [--output docs/hardware.md]

The models are those of examples/hardware, which have shapes but no weights. Figures are predicted, not measured."""

import argparse
import json
import math
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ["Qwen3-0.6B", "Qwen3-4B", "Qwen3-8B", "Llama-3.1-8B"]
ADAPTER = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear"}
WAYS = {
    "full": {},
    "full, 8-bit AdamW": {"optim": "adamw_8bit"},
    "LoRA": ADAPTER | {"dtype": "bfloat16"},
    "QLoRA": ADAPTER | {"dtype": "bfloat16", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
}
COMMON = {"max_length": 2048, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8,
          "max_steps": 1000, "gradient_checkpointing": "auto", "output_dir": "out"}
CARDS = ["T4", "RTX 3060", "RTX 3070", "RTX 3080", "RTX 3090", "RTX 4060", "RTX 4060 Ti", "RTX 4070", "RTX 4080",
         "RTX 4090", "RTX 5060 Ti", "RTX 5070 Ti", "RTX 5080", "RTX 5090", "L4", "A10", "L40S", "A100 40GB",
         "A100 80GB", "H100 80GB", "H200", "B200"]
HEAD = """# Hardware

What common models need, and the GPUs that they fit on. All figures are **predicted, not measured**: memory is the plan
that a run would have on such a GPU, and speed follows from data sheets and, for GPUs since Ampere, from the counted work
of the kernels, as [memory](memory.md#time) explains. Speeds are ranges, because the shares of the peaks are assumed.

Rows have 2,048 tokens, with one row per micro-batch and eight per update. Recomputation is as much as needed
(`gradient_checkpointing=auto`), trained weights are float32, frozen ones bfloat16 or 4 bits, and adapters of rank 16
with the usual dropout of 5 % are on all linear layers. A dash means that it does not fit. GPUs older than Turing (P100,
V100, GTX 1080) are not supported; the T4 has no bfloat16, so its figures are for `fp16=true`.

For your own config:

```sh
qtrain estimate config.json --cards
qtrain estimate config.json --gpu "RTX 4090"
```

`bench/hardware_page.py` writes this page from the GPUs in `plan/gpus.yaml` and the models in `examples/hardware`.
"""


def cards_of(qtrain, model, way):
    config = COMMON | way | {"model_name_or_path": str(ROOT / "examples/hardware" / model)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(config))
        command = [qtrain, "estimate", file, "--cards", "--no_data", "--json", "--quiet"]
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return {card["name"]: card for card in json.loads(said)["cards"]}


def cell(card):
    if not card["fits"] or not (card["runs"] or card["changes"]):
        return "-"
    low, high = (card["tokens_per_second_range"][end] for end in ("low", "high"))
    return f"{three_digits(low)}-{three_digits(high)}"


def three_digits(number):
    return f"{round(number, 2 - math.floor(math.log10(number))):,.0f}"


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"] +
                     ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def page(qtrain):
    runs = {(m, w): cards_of(qtrain, m, WAYS[w]) for m in MODELS for w in WAYS}
    text = HEAD + "\n## Memory\n\nMemory with the policy that needs least, and the smallest GPU of the list that it fits on.\n\n"
    rows = []
    for model in MODELS:
        for way in WAYS:
            cards = [runs[model, way][name] for name in CARDS]
            fit = [c for c in cards if c["fits"] and (c["runs"] or c["changes"])]
            smallest = min(fit, key=lambda c: (c["memory"], CARDS.index(c["name"]))) if fit else None
            least = min(c["total"] for c in cards) / 2**30
            rows.append([f"{model}, {way}", f"{least:.1f}", smallest["name"] if smallest else "-"])
    text += table(["run", "GiB", "GPU"], rows)
    for model in MODELS:
        text += f"\n## {model}: tokens per second\n\n"
        rows = [[name + (f" ({runs[model, 'LoRA'][name]['memory'] / 2**30:.0f} GiB)")] +
                [cell(runs[model, way][name]) for way in WAYS] for name in CARDS]
        text += table(["GPU", *WAYS], rows)
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--output", type=Path, default=ROOT / "docs/hardware.md")
    args = parser.parse_args()
    args.output.write_text(page(Path(args.qtrain).resolve()))
