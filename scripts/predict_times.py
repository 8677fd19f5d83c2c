#!/usr/bin/env python3
"""Predicts from what kernels execute how long they take on GPUs that nobody measured them on.

    scripts/predict_times.py            # prints what --write would write
    scripts/predict_times.py --write    # writes docs/kernels/times.md, a table of docs/kernels/README.md, and the
                                        # predictions of bench/step_cases.json
    scripts/predict_times.py --check    # exits with 1 if one of them is not what --write would write

The counts are those of bench/baselines/cuda_counts.csv, the GPUs those of plan/gpus.yaml and bench/gpu_timing.json; the
page explains the model. Every number is predicted, none is measured.
"""

import argparse
import csv
import json
import re
import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS, TIMING, CASES = (ROOT / f for f in ("bench/baselines/cuda_counts.csv", "bench/gpu_timing.json",
                                            "bench/step_cases.json"))
PAGE, OVERVIEW = ROOT / "docs/kernels/times.md", ROOT / "docs/kernels/README.md"
TOKENS, LENGTH, RANK = 16384, 2048, 16
GROUPS = ("gemm", "attention forward", "attention backward", "rope backward", "other element-wise", "adapter gemms",
          "cross-entropy", "update", "gaps")


@dataclass(frozen=True)
class Gpu:
    name: str
    processors: int  # multiprocessors
    flops: float  # of 16-bit GEMMs, in the data sheet
    bandwidth: float
    flops_per_cycle: int  # of a multiprocessor, in 16-bit GEMMs
    mma_share: float  # of that rate, for mma.sync
    shares: dict

    @property
    def clock(self):
        return self.flops / (self.processors * self.flops_per_cycle)


def gpus():
    timing = json.loads(TIMING.read_text(encoding="utf-8"))
    rows = (ROOT / "plan/gpus.yaml").read_text(encoding="utf-8")
    for name, of in timing["gpus"].items():
        sheet = re.search(rf"^  {name}: .*half: ([\d.]+),.*bandwidth: ([\d.]+),", rows, re.MULTILINE)
        yield Gpu(name, of["multiprocessors"], float(sheet[1]) * 1e12, float(sheet[2]) * 1e9, of["flops_per_cycle"],
                  of["mma_share"], timing["shares"])


def counts():
    with open(COUNTS, encoding="utf-8", newline="") as file:
        file.readline()
        rows = {}
        for row in csv.DictReader(file):
            of = {k: int(v) for k, v in row.items() if k not in ("case", "kernel")}
            rows.setdefault(row["case"], {})[row["kernel"]] = of
        return rows


INSTRUCTIONS = ("global_loads", "global_stores", "shared_loads", "shared_stores", "local", "atomics", "async_copies",
                "ldmatrix", "mma", "float", "special", "integer", "conversions", "branches", "shuffles", "barriers")


def terms(gpu, row, times, moved=None):
    """Seconds that each unit of the GPU is busy for `times` as much as what was counted; `moved`: bytes of DRAM."""
    cycle = 1 / (gpu.processors * gpu.clock)
    issued = sum(row[kind] for kind in INSTRUCTIONS if kind in row)
    slots = max(issued / 4, row["integer"] / 2, row["conversions"] / 2, row["special"] / 0.5)
    if moved is None:
        moved = times * min(row["global_bytes"], 32 * row["sectors"])
    return {"instructions": times * slots * cycle,
            "shared memory": times * row["wavefronts"] * cycle,
            "tensor cores": times * row["mma"] * 4096 / (gpu.flops * gpu.mma_share),
            "DRAM": moved / (gpu.bandwidth * gpu.shares["copy"])}


def seconds(gpu, of):
    longest = max(of.values())
    return longest + gpu.shares["overlap"] * (sum(of.values()) - longest)


@dataclass(frozen=True)
class Work:
    """A kernel of a step at its real shape."""
    op: str
    case: str
    kernel: str  # beginning of the name; "": all of the case
    times: float  # the counts of the case, for one launch
    launches: float  # of a micro-batch or an update
    moved: float = None  # bytes of DRAM, where caches serve more than one access to the same
    group: str = "other element-wise"
    alone: bool = False  # one block, on one multiprocessor

    def terms(self, gpu, row):
        return terms(gpu, row, self.times * (gpu.processors if self.alone else 1), self.moved)

    def rows(self, table):
        found = {k: v for k, v in table[self.case].items() if k.startswith(self.kernel)}
        if not found:
            sys.exit(f"{self.case} has no kernel {self.kernel}*")
        return found


@dataclass(frozen=True)
class Model:
    name: str
    width: int
    inner: int
    layers: int
    heads: int
    groups: int
    head: int
    vocabulary: int
    normed: bool  # heads have norms
    tied: bool

    @property
    def linears(self):
        d, q, kv, f = self.width, self.heads * self.head, self.groups * self.head, self.inner
        return [(d, q), (d, kv), (d, kv), (q, d), (d, f), (d, f), (f, d)]

    @property
    def weights(self):
        return self.layers * sum(i * o for i, o in self.linears) + self.vocabulary * self.width * (1 if self.tied else 2)


def model_of(config, name):
    return Model(name, config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"],
                 config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"],
                 config["vocab_size"], config["model_type"] == "qwen3", config["tie_word_embeddings"])


def attention_work(m, tokens):
    """Tiles of 128 queries and 64 keys forward and for dq, of 64 x 64 for dk and dv; counted with 128 tokens."""
    rows, keys = LENGTH // 128, LENGTH // 64
    share = tokens / LENGTH * m.heads / 16
    forward, square = share * rows * (rows + 1) / 2, share * keys * (keys + 1) / 2 / 3
    of_q, of_kv = 2 * tokens * m.heads * m.head, 2 * tokens * m.groups * m.head
    grad, back = "attention_grad/hd128/128", "attention backward"
    return [Work("attention", "attention/hd128/128", "", forward, m.layers, 2 * (of_q + of_kv), "attention forward"),
            Work("attention_grad", grad, "attention_delta", tokens / 128 * m.heads / 16, m.layers, None, back),
            Work("attention_grad", grad, "attention_dkdv", square, m.layers, 2 * of_q + 4 * of_kv, back),
            Work("attention_grad", grad, "attention_dq", forward, m.layers, 3 * of_q + 2 * of_kv, back)]


def rope_work(m, tokens):
    heads = tokens * (m.heads + m.groups) * m.head
    if m.normed:
        pair, of = ("qk_norm_rope/32x(16+8)x128", "qk_norm_rope_grad/32x(16+8)x128"), 32 * 24 * 128
        return [Work("qk_norm_rope", pair[0], "", heads / of, m.layers),
                Work("qk_norm_rope_grad", pair[1], "normed", heads / of, m.layers, None, "rope backward")]
    case, of = "rope_40x9x64_keys3 bfloat16", 40 * 12 * 64
    return [Work("rope", case, "rope_heads<", heads / of, m.layers),
            Work("rope_grad", case, "rope_heads_grad", heads / of, m.layers, None, "rope backward")]


def element_work(m, tokens, trained):
    d, f, ce = tokens * m.width / (32 * 512), tokens * m.inner / (32 * 1536), "cross_entropy/2x75968"
    norms = 2 * m.layers + 1
    works = [Work("rms_norm", "rms_norm/32x512", "", d, norms),
             Work("rms_norm_grad", "rms_norm_grad/32x512", "rms_norm", d, norms),
             Work("add", "add/32x512", "", d, 2 * m.layers),
             Work("swiglu", "swiglu/32x1536", "", f, m.layers),
             Work("swiglu_grad", "swiglu_grad/32x1536", "", f, m.layers),
             Work("cross_entropy", ce, "", tokens * m.vocabulary / (2 * 75968), 1, None, "cross-entropy")]
    if trained:
        case = "embedding_grad/2048x8192x64"
        works += [Work("embedding_grad", case, "sort_tokens", tokens / 2048, 1, alone=True),
                  Work("embedding_grad", case, "embedding_rows_grad", tokens * m.width / (2048 * 64), 1)]
    return works


def update_work(weights, coded):
    times, group = weights / 65536, "update"
    works = [Work("sum_squares", "sum_squares/65536", "sum_parts", times, 1, None, group),
             Work("copy to 16 bits", "copy/65536", "", 1.5 * times, 1, None, group)]
    if coded:
        return works + [Work("adamw_8bit", "adamw_8bit/65536", "", times, 1, None, group)]
    return works + [Work("adamw", "adamw/65536", "", times, 1, None, group)]


def gemm_seconds(gpu, m, n, k, element=2):
    """Tiles of 128 x 256 in waves; with few tiles, the summed dimension is split."""
    rate, tile = gpu.flops * gpu.shares["gemm"] / gpu.processors, gpu.shares["tile_seconds"]
    tiles = ceil(m / 128) * ceil(n / 256)
    best = min(ceil(tiles * split / gpu.processors) * (2 * 128 * 256 * ceil(k / split) / rate + tile)
               for split in (1, 2, 4, 8, 16) if split == 1 or tiles * split <= 2 * gpu.processors)
    moved = 2 * (m * k + n * k) + element * m * n
    return max(best, moved / (gpu.bandwidth * gpu.shares["copy"]))


def gemm_time(gpu, m, tokens, trained):
    sums = 0
    for i, o in m.linears:
        each = gemm_seconds(gpu, tokens, o, i) + gemm_seconds(gpu, tokens, i, o)
        sums += m.layers * (each + (gemm_seconds(gpu, o, i, tokens, 8) if trained else 0))
    head = gemm_seconds(gpu, tokens, m.vocabulary, m.width) + gemm_seconds(gpu, tokens, m.width, m.vocabulary)
    return sums + head + (gemm_seconds(gpu, m.vocabulary, m.width, tokens, 8) if trained else 0)


def adapter_time(gpu, m, tokens):
    """Passes over x (2), dx (2), y (2) and dy (2), 16 bits each, by GEMMs with few columns."""
    moved = 2 * 4 * tokens * sum(i + o for i, o in m.linears) * m.layers
    return moved / (gpu.bandwidth * gpu.shares["skinny"])


def works_of(m, tokens, trained):
    return attention_work(m, tokens) + rope_work(m, tokens) + element_work(m, tokens, trained)


def time_of(gpu, table, work):
    return sum(seconds(gpu, work.terms(gpu, row)) for row in work.rows(table).values())


def step(gpu, table, m, case):
    """Milliseconds of an update by group, for micro-batches of `case`."""
    trained = not case["config"].get("use_peft", False)
    tokens, micro = case["batch"] * LENGTH, case["accumulation"]
    ms = dict.fromkeys(GROUPS, 0.0)
    for work in works_of(m, tokens, trained):
        ms[work.group] += micro * work.launches * time_of(gpu, table, work)
    ms["gemm"] += micro * gemm_time(gpu, m, tokens, trained)
    launches = m.layers * 39 + 15
    if trained:
        for work in update_work(m.weights, case["config"].get("optim") == "adamw_8bit"):
            ms["update"] += work.launches * time_of(gpu, table, work)
        ms["update"] += 4 * m.weights / (gpu.bandwidth * gpu.shares["copy"])  # zeros for the next gradients
    else:
        launches = m.layers * 70 + 11
        ms["adapter gemms"] = micro * adapter_time(gpu, m, tokens)
        adapters = m.layers * RANK * sum(i + o for i, o in m.linears)
        for work in update_work(adapters, False):
            ms["update"] += work.launches * time_of(gpu, table, work)
    ms["gaps"] = micro * launches * gpu.shares["gap_seconds"]
    return {group: 1e3 * value for group, value in ms.items()}


def table_of(header, rows, numbers_from):
    marks = ["---" if n < numbers_from else "---:" for n in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows)).replace("| --- ", "|---") \
        .replace("| ---: ", "|---:").replace("--- |", "---|").replace("---: |", "---:|")


def shown(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def kernel_rows(all_gpus, table, m):
    rows = []
    for work in works_of(m, TOKENS, True) + update_work(m.weights, False) + update_work(m.weights, True)[-1:]:
        for kernel, row in work.rows(table).items():
            of = [work.terms(gpu, row) for gpu in all_gpus]
            limit = max(of[1], key=of[1].get)
            rows.append([work.op, f"`{kernel}`", limit, *(shown(1e6 * seconds(g, t)) for g, t in zip(all_gpus, of))])
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
        flops = (6 if trained else 4) * (m.weights - (0 if m.tied else m.vocabulary * m.width)) * tokens
        floors.append(tokens / (flops / (gpu.flops * gpu.shares["gemm"])))
    rows.append(["floor: GEMMs alone, at their highest rate", *(f"{f:,.0f}" for f in floors)])
    return ["ms of an update", *columns], rows


def between(text, table):
    """The text with `table` in place of what is between its marks."""
    begin, end = "<!-- predicted steps -->\n", "<!-- end of predicted steps -->"
    if begin not in text:
        sys.exit(f"{OVERVIEW} has no place for the table")
    return text[:text.index(begin) + len(begin)] + "\n" + table + "\n\n" + text[text.index(end):]


PAGE_TEXT = """# What the kernels should take

These times are **predicted, not measured**: no kernel of this page has run on such a GPU yet. `scripts/predict_times.py
--write` makes them from [what the kernels execute](counts.md), and a test fails if the page does not fit the counts.

The shape is that of a micro-batch of 16,384 tokens of Qwen3-0.6B, in rows of 2,048. Counts of the small cases grow in
proportion to the elements; those of attention with the number of tiles that the causal mask leaves. Then four units of a
multiprocessor, and the memory, are busy for

- instructions: those of a warp, except for moves, which the assembler removes. A multiprocessor issues four a cycle, but
  only two of integers and conversions, and one of special functions in two cycles;
- shared memory: a wavefront a cycle;
- tensor cores: the FLOPs of `mma` at the rate that `mma.sync` reaches;
- DRAM: the bytes, or those of the touched sectors if they are fewer, at {copy:.0%} of the bandwidth. For attention, every
  tensor once, since the L2 cache serves the rest.

A kernel takes the longest of these and {overlap:.0%} of the sum of the others, because they overlap incompletely. These
fractions are assumptions, as are {gap:.1f} µs between two launches, {gemm:.0%} of the data sheet's rate and {tile:.1f} µs
a tile of 128 x 256 for GEMMs, and {skinny:.0%} of the bandwidth for the GEMMs of adapters. `bench/gpu_timing.json` has
them all; they are to be replaced when there are measurements. Counts are those of code for sm_90a also where it says A100
or RTX 5090.

{parameters}

## Kernels

Microseconds of one launch; the unit that takes longest is that of an H200.

{kernels}
"""


def page_of(all_gpus, table, document, timing):
    m = model_of(document["models"]["qwen3-0.6b"], "qwen3-0.6b")
    shares = timing["shares"]
    return PAGE_TEXT.format(
        copy=shares["copy"], overlap=shares["overlap"], gap=1e6 * shares["gap_seconds"], gemm=shares["gemm"],
        tile=1e6 * shares["tile_seconds"], skinny=shares["skinny"],
        parameters=table_of(["GPU", "multiprocessors", "GHz", "FLOP a cycle", "of it by mma.sync", "GB/s", "source"],
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


def texts():
    """What --write writes, by path."""
    all_gpus, table, timing = list(gpus()), counts(), json.loads(TIMING.read_text(encoding="utf-8"))
    text = CASES.read_text(encoding="utf-8")
    document = json.loads(text)
    h200 = next(g for g in all_gpus if g.name == "H200")
    steps = table_of(*step_rows(h200, table, document), 1)
    return {PAGE: page_of(all_gpus, table, document, timing),
            OVERVIEW: between(OVERVIEW.read_text(encoding="utf-8"), steps),
            CASES: cases_of(h200, table, document, text)}


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
            sys.exit(f"{path.relative_to(ROOT)} does not fit the counts: scripts/predict_times.py --write")
    return None


if __name__ == "__main__":
    main()
