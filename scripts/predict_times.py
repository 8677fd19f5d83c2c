#!/usr/bin/env python3
"""Predicts the times of kernels on GPUs from counts of what they execute.

    scripts/predict_times.py            # prints what --write would write
    scripts/predict_times.py --write    # writes docs/kernels/times.md, tables of docs/kernels/README.md and
                                        # quantization.md, the predictions of bench/step_cases.json, and
                                        # plan/kernel_times.yaml for qtrain estimate
    scripts/predict_times.py --check    # exits with 1 if one of these files is not what --write would write

The counts are in bench/baselines/cuda_counts.csv, and the GPUs in plan/gpus.yaml and bench/gpu_timing.json. The page
explains the model. Every number is predicted; none was measured.
"""

import argparse
import json
import re
import sys

from kernel_times import (CASES, GROUPS, LENGTH, ROOT, TIMING, TOKENS, Gpu, attention_work, counts, gemm_time, gpus, model_of,
                          seconds, step, terms, update_work, works_of)

PLAN = ROOT / "plan/kernel_times.yaml"
PAGE, OVERVIEW, RECIPES = (ROOT / "docs/kernels" / name for name in ("times.md", "README.md", "quantization.md"))


def table_of(header, rows, numbers_from):
    marks = ["---" if n < numbers_from else "---:" for n in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows)).replace("| --- ", "|---") \
        .replace("| ---: ", "|---:").replace("--- |", "---|").replace("---: |", "---:|")


def shown(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def kernel_rows(all_gpus, table, m):
    rows = []
    for work in works_of(m, TOKENS, True) + update_work(m.weights, False) + update_work(m.weights, True)[-1:]:
        kernels = [work.rows(table, gpu) for gpu in all_gpus]
        for kernel in dict.fromkeys(k for of in kernels for k in of):
            of = [(gpu, found[kernel]) if kernel in found else None for gpu, found in zip(all_gpus, kernels)]
            first = work.terms(*next(t for t in [of[1], *of] if t))
            rows.append([work.op, f"`{kernel}`", max(first, key=first.get),
                         *(shown(1e6 * work.seconds(t[0], kernel, t[1])) if t else "-" for t in of)])
    return rows


def parameter_rows(all_gpus, timing):
    return [[g.name, str(g.processors), f"{g.clock / 1e9:.2f}", str(g.flops_per_cycle), f"{g.mma_share:.2f}",
             f"{g.bandwidth / 1e9:,.0f}", timing["gpus"][g.name]["source"]] for g in all_gpus]


def steps_of(gpu, table, document):
    for name, case in document["cases"].items():
        if "predicted_ms" in case:
            config = document["models"][case["model"]]
            yield name, case, step(gpu, table, model_of(config, case["model"]), case)


def step_rows(gpu, table, document):
    rows, columns = [], {name: (case, ms) for name, case, ms in steps_of(gpu, table, document)}
    for group in GROUPS:
        rows.append([group, *(f"{ms[group]:.1f}" for _, ms in columns.values())])
    speed = [case["batch"] * case["accumulation"] * LENGTH / sum(ms.values()) for case, ms in columns.values()]
    rows.append(["sum", *(f"{sum(ms.values()):.1f}" for _, ms in columns.values())])
    rows.append(["**predicted tokens/s**", *(f"**{1e3 * s:,.0f}**" for s in speed)])
    rows.append(["must (goal of the project)", *(f"{c['goals']['tokens_per_second']:,}" for c, _ in columns.values())])
    rows.append(["extreme", *(f"{c['goals']['extreme']:,}" for c, _ in columns.values())])
    floors = []
    for case, ms in columns.values():
        m = model_of(document["models"][case["model"]], case["model"])
        tokens, trained = case["batch"] * LENGTH, "use_peft" not in case["config"]
        inner = m.weights - m.vocabulary * m.width * (1 if m.tied else 2)
        if "fp8" in case["config"]:  # at twice the rate
            passes = 3 if trained else 2
            inner *= ((0.5 if case["config"].get("fp8_forward") else 1) + 0.5 * (passes - 1)) / passes
        flops = (6 if trained else 4) * (inner + m.vocabulary * m.width) * tokens
        floors.append(tokens / (flops / (gpu.flops * gpu.shares["gemm"])))
    rows.append(["floor: GEMMs alone, at their highest rate", *(f"{f:,.0f}" for f in floors)])
    return ["ms of an update", *columns], rows


def recipe_rows(gpu, table, document):
    """An update of the case in FP8 in bf16 and with each recipe."""
    case = document["cases"]["llama-3.1-8b-fp8"]
    m = model_of(document["models"][case["model"]], case["model"])
    plain = {key: value for key, value in case["config"].items() if "fp8" not in key}
    rows = [("bf16 weights and GEMMs", plain)]
    for forward in (False, True):
        for recipe in ("blockwise", "tensorwise"):
            rows.append((recipe + (", `fp8_forward`" if forward else ""),
                         plain | {"fp8": True, "load_in_fp8": True, "fp8_recipe": recipe, "fp8_forward": forward}))
    found = []
    for name, config in rows:
        ms = step(gpu, table, m, case | {"config": config})
        tokens = case["batch"] * case["accumulation"] * LENGTH
        found.append([name, f"{ms['gemm']:.1f}", f"{sum(ms.values()):.1f}", f"{1e3 * tokens / sum(ms.values()):,.0f}"])
    return ["", "GEMMs, ms", "all, ms", "tokens/s"], found


def between(path, name, table):
    """The text of a page with `table` in place of what is between its marks."""
    text, begin, end = path.read_text(encoding="utf-8"), f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if begin not in text:
        sys.exit(f"{path} lacks the marks between which the table belongs")
    return text[:text.index(begin) + len(begin)] + "\n" + table + "\n\n" + text[text.index(end):]


PAGE_TEXT = """# What the kernels should take

These times are **predicted, not measured**: no kernel of this page has run on such a GPU yet. `scripts/predict_times.py
--write` makes them from [what the kernels execute](counts.md), and a test fails if the page does not match the counts.

The shape is that of a micro-batch of 16,384 tokens of Qwen3-0.6B, in rows of 2,048. Counts of the small cases grow in
proportion to the elements; those of attention in rows of n tokens are a n + b n², fitted to 128 and 256 tokens. From the
counts follows how long each unit is busy:

- Instructions: a multiprocessor issues four warp instructions per cycle, but only two of integers and conversions, and
  one of special functions every two cycles. Moves are not counted, because the assembler removes them.
- Shared memory: one wavefront per cycle.
- Tensor cores: the FLOPs of `mma` at the rate that `mma.sync` reaches, and those of `wgmma` at {wgmma:.0%} of the peak. The
  shared memory that `wgmma` reads is not included.
- DRAM: the bytes, or those of the touched sectors if they are fewer, at {copy:.0%} of the bandwidth. Attention moves every
  tensor once, since the L2 cache serves the rest.

A kernel takes the longest of these times plus {overlap:.0%} of the sum of the others, because they overlap incompletely.
GEMMs in FP8 run at twice the rate of those in 16 bits, and those with scales for blocks at {blocks:.2f} times that rate.
For attention, that is the mean time of a multiprocessor. The blocks of its kernels differ in length, begin in a fixed
order as others end, and those of the gradients wait for each other in the middle of each step until another block has
ended the same step. So the time until the last block ends is longer, by the factor that `scripts/attention_tails.py`
finds by following the blocks one by one. If there is room for only one block on a multiprocessor, each needs {block:.1f} µs
before its first product and after its last; blocks of the forward kernel with `wgmma` stay, and need this only once.
What sorting the tiles takes (`order_queries`, and the first block of `attention_delta`) is not included: it grows with the
square of their number, and the counted cases have one or two.
These fractions are assumptions, as are {gap:.1f} µs between two launches, {gemm:.0%} of the data sheet's rate and
{tile:.1f} µs per tile of 128 x 256 for GEMMs, and {skinny:.0%} of the bandwidth for the GEMMs of adapters. All of them are
in `bench/gpu_timing.json`, to be replaced when there are measurements. The counts are those of code for sm_90a, also in
the columns of the A100 and the RTX 5090, but of the attention kernels that run on these GPUs.

{parameters}

## Kernels

Microseconds per launch, and the unit that takes longest on an H200.

{kernels}
"""


def page_of(all_gpus, table, document, timing):
    m = model_of(document["models"]["qwen3-0.6b"], "qwen3-0.6b")
    shares = timing["shares"]
    return PAGE_TEXT.format(
        copy=shares["copy"], wgmma=shares["wgmma"], overlap=shares["overlap"], gap=1e6 * shares["gap_seconds"], gemm=shares["gemm"],
        blocks=shares["fp8_blocks"],
        tile=1e6 * shares["tile_seconds"], block=1e6 * shares["block_seconds"], skinny=shares["skinny"],
        parameters=table_of(["GPU", "multiprocessors", "GHz", "FLOP per cycle", "share of mma.sync", "GB/s", "source"],
                            parameter_rows(all_gpus, timing), 1),
        kernels=table_of(["op", "kernel", "longest", *(g.name for g in all_gpus)], kernel_rows(all_gpus, table, m), 3))


def cases_of(gpu, table, document, text):
    """The text of step_cases.json with new predictions; its layout stays."""
    for name, _, ms in steps_of(gpu, table, document):
        values = ", ".join(f'"{group}": {ms[group]:.1f}' for group in GROUPS)
        lines, line = [], "       "
        for part in values.split(", "):
            if len(line) + len(part) + 2 > 116:
                lines.append(line)
                line = "       "
            line += f" {part},"
        block = "\n".join([*lines, line.rstrip(",")])
        text = re.sub(rf'("{name}": \{{.*?"predicted_ms": \{{\n).*?(\n      \}})', lambda f: f[1] + block + f[2], text,
                      count=1, flags=re.DOTALL)
    return text


def cycles_of(row, times):
    """Cycles of one multiprocessor for instructions and for shared memory, and FLOPs of mma."""
    one = Gpu("", 1, 1, 1, 1, 1, False, {"copy": 1, "wgmma": 1})  # a cycle takes a second
    of = terms(one, row, times, 0)
    return of["instructions"], of["shared memory"], of["tensor cores"]


PLAN_TEXT = """# The numbers from which plan/kernel_times.cpp predicts the times of steps. scripts/predict_times.py --write makes this
# file from bench/baselines/cuda_counts.csv and bench/gpu_timing.json. Nothing was measured (docs/kernels/times.md).
#
#   attention   per FLOP of causal attention, in kernels with wgmma and with mma.sync: cycles of a multiprocessor for
#               instructions and for shared memory, and operations of tensor cores
#   elements    bytes per token that the kernels between GEMMs move in a block, per element of the hidden state, of
#               queries and keys (with norms and without), and of the gate
#   gemm        shares of the peak for models of two widths, including the cost of tiles and waves on an H200
#   mma         shares of the peak that mma.sync reaches
#   shares      as explained on that page
attention:
  wgmma:
{wgmma_rows}
  mma:
{mma_rows}
elements:
{elements}
gemm:
{gemm_rows}
mma: {{blackwell: {blackwell}, others: {others}}}
shares: {{wgmma: {wgmma}, copy: {copy}, skinny: {skinny}, overlap: {overlap}, gap_seconds: {gap_seconds:.1e}}}
"""


def attention_of_plan(table, m, gpu):
    """Rows of the plan's table, from a micro-batch of TOKENS, with the time until the last block ends."""
    forward = 2 * LENGTH * m.heads * m.head * TOKENS
    sums = {"attention forward": [0, 0, 0], "attention backward": [0, 0, 0]}
    for work in attention_work(m, TOKENS):
        for kernel, row in work.rows(table, gpu).items():
            tail = work.tail(gpu, kernel, seconds(gpu, work.terms(gpu, row)))
            sums[work.group] = [a + tail * b for a, b in zip(sums[work.group], cycles_of(row, work.times))]
    lines = []
    for (group, of), flops in zip(sums.items(), (forward, 2 * forward)):
        values = ", ".join(f"{name}: {value / flops:.4g}" for name, value in zip(("instructions", "wavefronts", "operations"),
                                                                                 of))
        lines.append(f"    {group.removeprefix('attention ')}: {{{values}}}")
    return "\n".join(lines)


def bytes_of(table, case, kernel, elements):
    found = [row for name, row in table[case].items() if name.startswith(kernel)]
    return sum(min(row["global_bytes"], 32 * row["sectors"]) for row in found) / elements


def elements_of_plan(table):
    heads, plain, width, gate = 32 * 24 * 128, 40 * 12 * 64, 32 * 512, 32 * 1536
    rope = "rope_40x9x64_keys3 bfloat16"
    rows = {"forward": (2 * bytes_of(table, "rms_norm/32x512", "", width),
                        bytes_of(table, "qk_norm_rope/32x(16+8)x128", "", heads), bytes_of(table, rope, "rope_heads<", plain),
                        bytes_of(table, "swiglu/32x1536", "", gate)),
            "backward": (2 * bytes_of(table, "rms_norm_grad/32x512", "rms_norm", width),
                         bytes_of(table, "qk_norm_rope_grad/32x(16+8)x128", "normed", heads),
                         bytes_of(table, rope, "rope_heads_grad", plain), bytes_of(table, "swiglu_grad/32x1536", "", gate))}
    return "\n".join(f"  {name}: {{width: {w:.2f}, normed_heads: {n:.2f}, heads: {h:.2f}, gate: {g:.2f}}}"
                     for name, (w, n, h, g) in rows.items())


def gemm_of_plan(gpu, document):
    lines = []
    for name, model in (("narrow", "qwen3-0.6b"), ("wide", "qwen3-8b")):
        m = model_of(document["models"][model], model)
        flops = 6 * (m.weights - (0 if m.tied else m.vocabulary * m.width)) * TOKENS
        share = flops / gpu.flops / gemm_time(gpu, m, TOKENS, True)
        lines.append(f"  {name}: {{width: {m.width}, share: {share:.3f}}}")
    return "\n".join(lines)


def plan_of(gpu, other, table, document, timing):
    m = model_of(document["models"]["qwen3-0.6b"], "qwen3-0.6b")
    return PLAN_TEXT.format(wgmma_rows=attention_of_plan(table, m, gpu), mma_rows=attention_of_plan(table, m, other),
                            elements=elements_of_plan(table),
                            gemm_rows=gemm_of_plan(gpu, document), **timing["mma"], **timing["shares"])


def texts():
    """What --write writes, by path."""
    all_gpus, table, timing = list(gpus()), counts(), json.loads(TIMING.read_text(encoding="utf-8"))
    text = CASES.read_text(encoding="utf-8")
    document = json.loads(text)
    h200, a100 = (next(g for g in all_gpus if g.name == name) for name in ("H200", "A100 80GB"))
    steps, recipes = (table_of(*rows(h200, table, document), 1) for rows in (step_rows, recipe_rows))
    return {PAGE: page_of(all_gpus, table, document, timing),
            OVERVIEW: between(OVERVIEW, "predicted steps", steps),
            RECIPES: between(RECIPES, "predicted recipes", recipes),
            CASES: cases_of(h200, table, document, text),
            PLAN: plan_of(h200, a100, table, document, timing)}


def write():
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.write:
        return write()
    for path, new in texts().items():
        if not args.check:
            print(new)
        elif not path.exists() or path.read_text(encoding="utf-8") != new:
            sys.exit(f"{path.relative_to(ROOT)} does not match the counts; run scripts/predict_times.py --write")
    return None


if __name__ == "__main__":
    main()
