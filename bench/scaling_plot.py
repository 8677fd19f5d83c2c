#!/usr/bin/env python3
"""Draws docs/scaling.svg: tokens per second for each GPU over the number of GPUs, as `qtrain estimate --nodes` predicts them.

    bench/scaling_plot.py --qtrain build/release/bin/qtrain [--output docs/scaling.svg]

Llama 3.1 8B on H100, sequences of 8192 tokens, two per micro-batch, one micro-batch per update, zero_stage 3. The points
were measured by others (torchtitan). Standard library only.
"""

import argparse
import json
import math
import subprocess
import tempfile
from pathlib import Path

MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
         "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 500000.0,
         "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
RUN = {"random_init": True, "bf16": True, "max_length": 8192, "per_device_train_batch_size": 2,
       "gradient_accumulation_steps": 1, "max_steps": 1000, "gradient_checkpointing": "selective", "zero_stage": 3}
MFU = 0.3516  # chosen so that the prediction for 8 GPUs equals torchtitan's measurement
NODES = (1, 2, 4, 8, 16, 32, 64, 128)
LINES = (("default", (), "a"),
         ("with deterministic_reduce", ("deterministic_reduce=true",), "b"),
         ("no overlap of exchanges and computation", ("--overlap", "no"), "c"))
MEASURED = (("torchtitan, torch.compile", ((8, 6667), (128, 6514))), ("torchtitan, eager", ((8, 5762), (128, 5605))))

STYLE = """
  text { font: 13px sans-serif; fill: #24292f }
  .axis { stroke: #6e7781; stroke-width: 1 } .grid { stroke: #6e7781; stroke-width: 1; opacity: .25 }
  .a { stroke: #0969da; fill: none; stroke-width: 2 } .b { stroke: #1a7f37; fill: none; stroke-width: 2 }
  .c { stroke: #8250df; fill: none; stroke-width: 2 }
  .a-text { fill: #0969da } .b-text { fill: #1a7f37 }
  .c-text { fill: #8250df }
  .point { fill: none; stroke: #24292f; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .axis, .grid { stroke: #8b949e } .point { stroke: #e6edf3 }
    .a { stroke: #58a6ff } .b { stroke: #3fb950 } .c { stroke: #a371f7 }
    .a-text { fill: #58a6ff } .b-text { fill: #3fb950 } .c-text { fill: #a371f7 }
  }"""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 20, 48, 50
MOST = 8000  # tokens per second


def predicted(qtrain, folder, nodes, flags):
    command = [qtrain, "estimate", folder / "run.json", "--no_data", "--gpu", "H100", "--nodes", str(nodes), "--mfu",
               str(MFU), "--json", "--quiet", *flags]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    ranks = json.loads(told.stdout)["of_ranks"]
    return ranks["stages"][3]["tokens_per_second"] / (nodes * ranks["ranks_per_node"])


def x_of(gpus):
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(gpus / 8) / math.log2(1024 / 8)


def y_of(tokens):
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * tokens / MOST


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def axes():
    yield text(LEFT, 20, "Llama 3.1 8B on H100, zero_stage=3: tokens per second for each GPU", 'font-weight="bold"')
    for tokens in range(0, MOST + 1, 2000):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(tokens):.1f}" y2="{y_of(tokens):.1f}"/>'
        yield text(LEFT - 8, y_of(tokens) + 4, f"{tokens:,}", 'text-anchor="end"')
    for nodes in NODES:
        yield text(x_of(8 * nodes), HEIGHT - BOTTOM + 20, str(8 * nodes), 'text-anchor="middle"')
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(0)}" y2="{y_of(0)}"/>'
    yield text((LEFT + WIDTH) / 2, HEIGHT - 8, "GPUs, 8 in each node, 400 Gb/s each", 'text-anchor="middle"')


def drawing(lines):
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    yield f"<style>{STYLE}\n</style>"
    yield from axes()
    for row, (name, kind, values) in enumerate(lines):
        points = " ".join(f"{x_of(8 * n):.1f},{y_of(v):.1f}" for n, v in zip(NODES, values))
        yield f'<polyline class="{kind}" points="{points}"/>'
        yield text(LEFT + 14, y_of(2400) + 22 * row, f"predicted: {name}", f'class="{kind}-text"')
    for row, (name, points) in enumerate(MEASURED):
        for gpus, tokens in points:
            shape = f'<circle class="point" cx="{x_of(gpus):.1f}" cy="{y_of(tokens):.1f}" r="5"/>'
            square = f'<rect class="point" x="{x_of(gpus) - 5:.1f}" y="{y_of(tokens) - 5:.1f}" width="10" height="10"/>'
            yield shape if row == 0 else square
        mark = f"measured by {name} ({'circles' if row == 0 else 'squares'})"
        yield text(LEFT + 14, y_of(2400) + 22 * (len(lines) + row), mark)
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "docs/scaling.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text(json.dumps(MODEL))
        run = dict(RUN, model_name_or_path=str(folder / "model"), output_dir=str(folder / "out"),
                   dataset_name=str(folder / "rows.jsonl"))
        (folder / "run.json").write_text(json.dumps(run))
        lines = [(name, kind, [predicted(args.qtrain, folder, n, flags) for n in NODES]) for name, flags, kind in LINES]
    for name, _, values in lines:
        print(f"{name}: " + ", ".join(f"{8 * n} {v:.0f}" for n, v in zip(NODES, values)))
    args.output.write_text("\n".join(drawing(lines)) + "\n")


if __name__ == "__main__":
    main()
