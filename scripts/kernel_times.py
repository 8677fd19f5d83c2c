"""How scripts/predict_times.py computes the times of kernels, GEMMs and steps from counts and the peaks of a GPU."""

import csv
import json
import re
import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from attention_tails import Blocks, backward_tail, forward_tail

ROOT = Path(__file__).resolve().parent.parent
COUNTS, TIMING, CASES = (ROOT / f for f in ("bench/baselines/cuda_counts.csv", "bench/gpu_timing.json",
                                            "bench/step_cases.json"))
TOKENS, LENGTH, RANK = 16384, 2048, 16
GROUPS = ("gemm", "dequantize", "attention forward", "attention backward", "rope backward", "other element-wise",
          "adapter gemms", "cross-entropy", "update", "gaps")


@dataclass(frozen=True)
class Gpu:
    name: str
    processors: int  # multiprocessors
    flops: float  # FLOP/s of 16-bit GEMMs in the data sheet
    bandwidth: float  # bytes/s
    flops_per_cycle: int  # of 16-bit GEMMs, per multiprocessor
    mma_share: float  # share of that rate which mma.sync reaches
    warpgroups: bool  # whether it has wgmma
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
                  timing["mma"][of["mma"]], of["mma"] == "hopper", timing["shares"])


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
    """Seconds that each unit of the GPU is busy with `times` the counted work; `moved`: bytes of DRAM, if known."""
    cycle = 1 / (gpu.processors * gpu.clock)
    issued = sum(row[kind] for kind in INSTRUCTIONS if kind in row)
    slots = max(issued / 4, row["integer"] / 2, row["conversions"] / 2, row["special"] / 0.5)
    if moved is None:
        moved = times * min(row["global_bytes"], 32 * row["sectors"])
    return {"instructions": times * slots * cycle,
            "shared memory": times * row["wavefronts"] * cycle,
            "tensor cores": times * (row["mma"] * 4096 / gpu.mma_share +
                                     row.get("wgmma_flops", 0) / gpu.shares["wgmma"]) / gpu.flops,
            "DRAM": moved / (gpu.bandwidth * gpu.shares["copy"])}


def seconds(gpu, of):
    longest = max(of.values())
    return longest + gpu.shares["overlap"] * (sum(of.values()) - longest)


# By the beginnings of their names.
ATTENTION_BLOCKS = {"attention_warpgroups<Bf16, 128": Blocks(1, True, 128, 128),
                    "attention_warpgroups<Bf16, 64": Blocks(1, True, 192, 128),
                    "attention_tile<Bf16, 128": Blocks(2, False, 128, 32, True),
                    "attention_tile<Bf16, 64": Blocks(2, False, 128, 64, True),
                    "attention_grad_": Blocks(1, False)}


@dataclass(frozen=True)
class Work:
    """A kernel of a step at its real shape."""
    op: str
    case: str
    kernel: str  # beginning of the name; "": all of the case
    times: float  # multiple of the case's counts, for one launch
    launches: float  # per micro-batch or update
    moved: float = None  # bytes of DRAM, if caches serve repeated accesses
    group: str = "other element-wise"
    alone: bool = False  # whether it is one block, on one multiprocessor
    lengths: float = 0  # attention: length of rows as a multiple of the 128 tokens that were counted
    products: int = 0  # attention: GEMMs per tile
    documents: tuple = ()  # attention: their lengths
    heads: tuple = ()  # attention: key heads, and query heads for each

    def terms(self, gpu, row):
        return terms(gpu, row, self.times * (gpu.processors if self.alone else 1), self.moved)

    def seconds(self, gpu, kernel, row):
        busy = seconds(gpu, self.terms(gpu, row))
        return busy * self.tail(gpu, kernel, busy)

    def tail(self, gpu, kernel, busy):
        """The time of the last block as a multiple of the mean time of multiprocessors. A block that is alone on its
        multiprocessor starts and ends without products."""
        blocks = next((b for name, b in ATTENTION_BLOCKS.items() if kernel.startswith(name)), None)
        if not self.heads or not blocks:
            return 1
        start = gpu.shares["block_seconds"] / busy if blocks.per_processor == 1 else 0
        groups, share = self.heads
        if self.products > 2:
            return backward_tail(gpu.processors, self.documents, groups, share, start)
        return forward_tail(gpu.processors * blocks.per_processor, self.documents, groups * share, blocks, start)

    def rows(self, table, gpu=None):
        """The counts by kernel, of the kernels that this GPU uses if the op has several."""
        case, has_warpgroups = self.case, bool(gpu and gpu.warpgroups)
        if self.lengths and not has_warpgroups:
            case += " sm_80"
        found = {k: v for k, v in table[case].items() if k.startswith(self.kernel)}
        if not found:
            sys.exit(f"{case} has no kernel {self.kernel}*")
        return {k: self.at_length(k, v, table[case.replace("/128", "/256")]) for k, v in found.items()} if self.lengths else found

    def at_length(self, kernel, short, longer):
        """The number of blocks grows with the length n, and that of tiles with n^2 and n, so the counts are a n + b n^2."""
        n, row = self.lengths, {}
        for count, one in short.items():
            square = (longer[kernel][count] - 2 * one) / 2
            row[count] = n * (one - square) + n * n * square
        if "warpgroups" in kernel:  # their products have several sizes, so FLOPs are those of tiles of 128 x 128
            width = int(re.search(r"hd(\d+)", self.case)[1])
            row["wgmma_flops"] = 16 * self.products * 2 * 128**2 * width * n * (n + 1) / 2
            row["mma"] = 0
        return row


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
    def gemms(self):
        """Inputs and outputs of the GEMMs; layers with the same input share one. The third number is the bytes of an
        element of y: that of o and down is a sum with the residual stream, which the GEMM also reads."""
        d, q, kv, f = self.width, self.heads * self.head, self.groups * self.head, self.inner
        return [(d, q + 2 * kv, 2), (q, d, 4), (d, 2 * f, 2), (f, d, 4)]

    @property
    def weights(self):
        return self.layers * sum(i * o for i, o in self.linears) + self.vocabulary * self.width * (1 if self.tied else 2)


def model_of(config, name):
    return Model(name, config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"],
                 config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"],
                 config["vocab_size"], config["model_type"] == "qwen3", config["tie_word_embeddings"])


def attention_work(m, tokens):
    share, n = tokens / LENGTH * m.heads / 16, LENGTH // 128
    of_q, of_kv = 2 * tokens * m.heads * m.head, 2 * tokens * m.groups * m.head
    sums = 2 * 2 * of_q  # of dq in f32, written and read
    case, back = f"hd{m.head}/128", "attention backward"
    shape = dict(lengths=n, documents=(LENGTH,) * (tokens // LENGTH), heads=(m.groups, m.heads // m.groups))
    return [Work("attention", f"attention/{case}", "attention_", share, m.layers, 2 * (of_q + of_kv), "attention forward",
                 products=2, **shape),
            Work("attention_grad", f"attention_grad/{case}", "attention_delta", share, m.layers, None, back, lengths=n),
            Work("attention_grad", f"attention_grad/{case}", "attention_grad", share, m.layers,
                 3 * of_q + 4 * of_kv + sums, back, products=5, **shape)]


def rope_work(m, tokens):
    heads, values = tokens * (m.heads + m.groups) * m.head, tokens * m.groups * m.head
    case, of = "rope_40x9x64_keys3 bfloat16", 40 * 12 * 64
    if not m.normed:
        return [Work("rope", case, "rope_heads<", (heads + values) / of, m.layers),
                Work("rope_grad", case, "rope_heads_grad", (heads + values) / of, m.layers, None, "rope backward")]
    pair, of_pair = ("qk_norm_rope/32x(16+8)x128", "qk_norm_rope_grad/32x(16+8)x128"), 32 * 24 * 128
    return [Work("qk_norm_rope", pair[0], "", heads / of_pair, m.layers),
            Work("qk_norm_rope, values", case, "rope_heads<", values / of, m.layers),
            Work("qk_norm_rope_grad", pair[1], "normed", heads / of_pair, m.layers, None, "rope backward"),
            Work("qk_norm_rope_grad, values", case, "rope_heads_grad", values / of, m.layers, None, "rope backward")]


def element_work(m, tokens, trained):
    d, f, ce = tokens * m.width / (32 * 512), tokens * m.inner / (32 * 1536), "cross_entropy/2x75968"
    norms = 2 * m.layers + 1
    works = [Work("rms_norm", "rms_norm/32x512", "", d, norms),
             Work("rms_norm_grad", "rms_norm_grad/32x512", "rms_norm", d, norms),
             Work("swiglu", "packed_glu/32x1536", "", f, m.layers),
             Work("swiglu_grad", "packed_glu_grad/32x1536", "", f, m.layers),
             Work("cross_entropy", ce, "", tokens * m.vocabulary / (2 * 75968), 1, None, "cross-entropy")]
    if trained:
        case = "embedding_grad/2048x8192x64"
        works += [Work("embedding_grad", case, "sort_tokens", tokens / 2048, 1, alone=True),
                  Work("embedding_grad", case, "embedding_rows_grad", tokens * m.width / (2048 * 64), 1)]
    return works


@dataclass(frozen=True)
class Fp8:
    """GEMMs in FP8 as a config asks for them (docs/kernels/quantization.md)."""
    blocks: bool  # scales for blocks
    forward: bool  # in the forward pass, too
    stored: bool  # the weights are stored in FP8, with the scales that the GEMMs read

    @staticmethod
    def of(gpu, config):
        recipe = config.get("fp8_recipe", "auto")
        return Fp8(recipe == "blockwise" or (recipe == "auto" and gpu.warpgroups), config.get("fp8_forward", False),
                   config.get("load_in_fp8", False)) if config.get("fp8") else None

    def rate(self, gpu):
        """Relative to that of GEMMs in 16 bits."""
        return gpu.shares["fp8_blocks"] if self.blocks else 2


def fp8_weight_work(m, i, o, fp8):
    """What prepares W for y and its transpose for dx. If it is stored in FP8, it only has to be transposed, or expanded for a
    forward pass in 16 bits."""
    size, one, turned = i * o / (128 * 256), "to_fp8/128x256", "to_fp8/128x256 transposed"
    search = [] if fp8.blocks else [("fp8_largest_parts", one)]
    encode = ("fp8_encode_squares", "to_fp8/128x256 squares") if fp8.blocks else ("fp8_encode", one)
    encode_turned = ("fp8_encode_squares", "to_fp8/128x256 squares transposed") if fp8.blocks else ("fp8_encode", turned)
    works = []
    if not fp8.stored:
        if fp8.forward:
            works += [Work("to_fp8, W", case, kernel, size, m.layers) for kernel, case in (*search, encode)]
        return works + [Work("to_fp8, W transposed", case, kernel, size, m.layers) for kernel, case in (*search, encode_turned)]
    if not fp8.forward:
        works.append(Work("expand_fp8", "expand_fp8/128x256", "", size, m.layers, 3 * i * o))
    # As many instructions as for encoding, which are not the limit.
    return works + [Work("transpose_fp8", one, "fp8_encode", size, m.layers, 2 * i * o)]


def fp8_work(m, tokens, fp8):
    """What encodes the operands of GEMMs in FP8. With one scale, the kernels that write the x of q, k, v, gate, up and down,
    and the dy of gate and up, find the largest magnitudes, and other operands are searched first. Blocks are read once."""
    size, works = 128 * 256, []

    def encode(op, elements, found):
        if fp8.blocks:
            return [Work(op, "to_fp8/128x256 vectors", "fp8_encode_vectors", elements / size, m.layers)]
        kernels = ["fp8_encode"] if found else ["fp8_largest_parts", "fp8_encode"]
        return [Work(op, "to_fp8/128x256", kernel, elements / size, m.layers) for kernel in kernels]

    found_x, found_dy = (True, False, True, True), (False, False, True, False)
    for (i, o, _), has_x, has_dy in zip(m.gemms, found_x, found_dy):
        works += encode("to_fp8, x", tokens * i, has_x) if fp8.forward else []
        works += encode("to_fp8, dy", tokens * o, has_dy) + fp8_weight_work(m, i, o, fp8)
    return works


def fp8_launches(m, fp8, works):
    """Before an operand is encoded with one scale, a small kernel computes it; scales of blocks that are stored are copied
    for each pass in FP8, those of q, k, v and of gate, up one by one."""
    copied = 7 * m.layers * (2 if fp8.forward else 1) if fp8.blocks and fp8.stored else 0
    scales = sum(work.launches for work in works if work.op.startswith("to_fp8") and work.kernel == "fp8_encode")
    return sum(work.launches for work in works) + scales + copied


def update_work(weights, coded):
    times, group = weights / 65536, "update"
    works = [Work("sum_squares", "sum_squares/65536", "sum_parts", times, 1, None, group)]
    if coded:
        # With the 16-bit copy of the weights, and without the tables of codes, which stay in caches.
        moved = weights * (3 * 4 + 2 * 2 + 4 * 4 / 256 + 2)
        return works + [Work("adamw_8bit", "adamw_8bit/65536", "", times, 1, moved, group)]
    return works + [Work("adamw", "adamw_with_copy/65536", "", times, 1, None, group)]


def gemm_seconds(gpu, m, n, k, element=2, fp8=None):
    """A GEMM runs in waves of tiles of 128 x 256. If there are few tiles, the summed dimension is split. `element`: bytes of
    C; `fp8`: if the operands are in FP8."""
    faster, operand = (fp8.rate(gpu), 1) if fp8 else (1, 2)
    rate, tile = faster * gpu.flops * gpu.shares["gemm"] / gpu.processors, gpu.shares["tile_seconds"]
    tiles = ceil(m / 128) * ceil(n / 256)
    best = min(ceil(tiles * split / gpu.processors) * (2 * 128 * 256 * ceil(k / split) / rate + tile)
               for split in (1, 2, 4, 8, 16) if split == 1 or tiles * split <= 2 * gpu.processors)
    moved = operand * (m * k + n * k) + element * m * n
    return max(best, moved / (gpu.bandwidth * gpu.shares["copy"]))


@dataclass(frozen=True)
class Group:
    """Layers that share an input and have adapters (docs/kernels/gemm.md)."""
    inputs: int
    outputs: tuple  # of each layer
    element: int  # bytes of an element of y
    with_y: bool  # whether the adapters are in the GEMM of y
    with_dx: bool  # in that of dx, for which dy is copied; a GEMM that they are not in adds to their result

    @property
    def width(self):
        return sum(self.outputs)

    @property
    def ranks(self):
        return RANK * len(self.outputs)


def groups_of(m, tokens, case):
    """The groups of a block with adapters. Only o reads what is not written with columns beside it; q, k, v and gate, up
    have more outputs than inputs."""
    outputs = [m.linears[0:3], m.linears[3:4], m.linears[4:6], m.linears[6:7]]
    quantized, fp8 = case["config"].get("load_in_4bit", False), case["config"].get("fp8", False)
    groups = []
    for (i, o, element), layers, beside in zip(m.gemms, outputs, (True, False, True, True)):
        with_y = beside and not fp8 and tokens * (4 if quantized else 1) >= 2 * i
        with_dx = len(layers) == 1 and i >= o and not fp8 and \
            tokens * (3 * i - 2 * o) >= (1 if quantized else 4) * i * o
        groups.append(Group(i, tuple(n for _, n in layers), element, with_y, with_dx))
    return groups


def gemm_time(gpu, m, tokens, trained, fp8=None, groups=None):
    """`groups`: those with adapters."""
    sums, of_y = 0, fp8 if fp8 and fp8.forward else None
    for n, (i, o, element) in enumerate(m.gemms):
        more_y = more_dx = 0  # terms
        of_dx = 2
        if groups:
            g = groups[n]
            more_y, more_dx = (g.ranks if joined else 0 for joined in (g.with_y, g.with_dx))
            element, of_dx = (bytes_of if joined else 4 for joined, bytes_of in ((g.with_y, element), (g.with_dx, 2)))
        each = (gemm_seconds(gpu, tokens, o, i + more_y, element, of_y) +
                gemm_seconds(gpu, tokens, i, o + more_dx, of_dx, fp8))
        sums += m.layers * (each + (gemm_seconds(gpu, o, i, tokens, 8, fp8) if trained else 0))
    head = gemm_seconds(gpu, tokens, m.vocabulary, m.width) + gemm_seconds(gpu, tokens, m.width, m.vocabulary)
    return sums + head + (gemm_seconds(gpu, m.vocabulary, m.width, tokens, 8) if trained else 0)


def adapter_launches(tokens, outputs):
    """The number of launches of adapter_grads for a group, each with two kernels, and how many f32 of du and dB their
    blocks write and read again (ops::AdapterGrid)."""
    launches = 0
    while True:
        launches += 1
        of_launch = 64 * ceil(ceil(tokens / launches) / 64)
        most = min(of_launch, tokens)
        splits = ceil(most / 640)
        rows = 64 * ceil(ceil(most / splits) / 64)
        width = 128 * max(2, ceil(sum(ceil(o / 128) for o in outputs) * splits / 264))

        def sums_of(n):
            return RANK * sum(ceil(o / width) * n + ceil(n / rows) * o for o in outputs)

        if 4 * sums_of(most) <= 16 << 20:
            full = ceil(tokens / of_launch) - 1
            return full + 1, full * sums_of(most) + sums_of(tokens - full * of_launch)


def adapter_sums(tokens, outputs):
    return adapter_launches(tokens, outputs)[1]


def adapter_work(m, tokens, groups):
    """The kernels that read dy once for du and dB of a group, and write a copy of it for the GEMM of dx."""
    works, case, counted = [], "adapter_grads/640x1024x16", 640 * 1024
    for group in groups:
        sums, size = adapter_sums(tokens, group.outputs), tokens * group.width
        moved = 2 * size * (2 if group.with_dx else 1) + 4 * sums
        works += [Work("adapter_grads", case, "adapter_grads_tiles", size / counted, m.layers, moved, "adapter gemms"),
                  Work("adapter_grads", case, "for_elements", sums / adapter_sums(640, (1024,)), m.layers, 4 * sums,
                       "adapter gemms")]
    return works


def adapter_time(gpu, m, tokens, groups, quantized):
    """GEMMs with few columns read x twice and write y and dx, in 16 bits, and read y if it has the residual stream. Adapters
    in the GEMM of y or dx do not, but W is copied, unless it is expanded anyway (docs/kernels/gemm.md)."""
    moved = copied = 0
    for g in groups:
        of_y = 0 if g.with_y else g.element // 2
        moved += 2 * tokens * ((2 if g.with_dx else 3) * g.inputs + of_y * g.width)
        copied += 0 if quantized else 4 * g.inputs * g.width * (g.with_y + g.with_dx)
    return m.layers * (moved / (gpu.bandwidth * gpu.shares["skinny"]) + copied / (gpu.bandwidth * gpu.shares["copy"]))


def expansion_work(m):
    """4-bit weights are expanded in the forward pass and in the backward pass."""
    inner = sum(i * o for i, o in m.linears)
    return [Work("dequantize4", "dequantize4/1536x512", "", inner / (1536 * 512), 2 * m.layers, None, "dequantize")]


def works_of(m, tokens, trained):
    return attention_work(m, tokens) + rope_work(m, tokens) + element_work(m, tokens, trained)


def time_of(gpu, table, work):
    return sum(work.seconds(gpu, kernel, row) for kernel, row in work.rows(table, gpu).items())


def step(gpu, table, m, case):
    """Milliseconds of an update of `case`, by group."""
    trained = not case["config"].get("use_peft", False)
    tokens, micro = case["batch"] * LENGTH, case["accumulation"]
    ms = dict.fromkeys(GROUPS, 0.0)
    for work in works_of(m, tokens, trained):
        ms[work.group] += micro * work.launches * time_of(gpu, table, work)
    config = case["config"]
    fp8 = Fp8.of(gpu, config)
    encoding = fp8_work(m, tokens, fp8) if fp8 else []
    quantized = config.get("load_in_4bit", False)
    groups = None if trained else groups_of(m, tokens, case)
    for work in encoding + (expansion_work(m) if quantized else []) + (adapter_work(m, tokens, groups) if groups else []):
        ms[work.group] += micro * work.launches * time_of(gpu, table, work)
    ms["gemm"] += micro * gemm_time(gpu, m, tokens, trained, fp8, groups)
    launches = m.layers * 29 + 15  # one of a layer sets the counter of attention's items to zero
    if trained:
        for work in update_work(m.weights, case["config"].get("optim") == "adamw_8bit"):
            ms["update"] += work.launches * time_of(gpu, table, work)
        # The first micro-batch stores gradients, but that of an embedding without a tied head adds to zeros.
        ms["update"] += 4 * (0 if m.tied else m.vocabulary * m.width) / (gpu.bandwidth * gpu.shares["copy"])
    else:
        # Further launches of adapter_grads for a group have two kernels each. A weight for dx that is not expanded is
        # copied.
        further = sum(2 * (adapter_launches(tokens, g.outputs)[0] - 1) + (0 if quantized or not g.with_dx else 1)
                      for g in groups)
        launches = m.layers * ((68 if quantized else 56) + further) + 11
        ms["adapter gemms"] += micro * adapter_time(gpu, m, tokens, groups, quantized)
        adapters = m.layers * RANK * sum(i + o for i, o in m.linears)
        for work in update_work(adapters, False):
            ms["update"] += work.launches * time_of(gpu, table, work)
    launches += fp8_launches(m, fp8, encoding) if fp8 else 0
    ms["gaps"] = micro * launches * gpu.shares["gap_seconds"]
    return {group: 1e3 * value for group, value in ms.items()}
