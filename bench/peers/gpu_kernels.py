#!/usr/bin/env python3
"""Compares this project's kernels with PyTorch's, in one process and on one stream.

    python3 gpu_kernels.py --library build/gpu/lib/libqtrain_ops.so --json kernels.json
    python3 gpu_kernels.py --library ... --device cpu --small --no_compile       # checks that everything runs

Variants alternate on random data, with inputs rotated to exceed the L2 cache; times are medians of CUDA events. A
figure counts only if the error of this project's result against float32 is at most 1.5 times that of PyTorch's eager
bfloat16 result. The JSON has one entry per figure: {figure, value, goal, ours_ms, torch_ms, ...}; the value is PyTorch's
time over ours. The copy's bandwidth and the largest GEMM's FLOPs per second have goals for the GPU (gpu_card.py), or
none.
"""

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import sys
import time
import traceback

import torch
import torch._functorch.config
import torch.nn.functional as F

import gpu_card

try:
    import bitsandbytes
except Exception as problem:  # not installed, or its dependencies are missing: skip its figures
    print(f"bitsandbytes: {problem}")
    bitsandbytes = None

STARTED = time.monotonic()  # after the import of PyTorch, which takes a while

DTYPES = {torch.float32: b"float32", torch.bfloat16: b"bfloat16", torch.float16: b"float16", torch.int32: b"int32",
          torch.int64: b"int64", torch.float64: b"float64", torch.uint8: b"uint8"}
ROTATED = 256 << 20  # bytes; the largest L2 cache of any GPU is 126 MiB
ERROR_SLACK = 1.5
HEAD_START = 600_000  # cycles that the GPU waits, so that the host's launch time is not measured


class CTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_char_p), ("dims", ctypes.c_int64 * 4),
                ("rank", ctypes.c_int32), ("adds", ctypes.c_int32)]


class CCall(ctypes.Structure):
    _fields_ = [("op", ctypes.c_char_p), ("tensors", ctypes.POINTER(CTensor)),
                ("numbers", ctypes.POINTER(ctypes.c_double)), ("tensor_count", ctypes.c_int32),
                ("number_count", ctypes.c_int32)]


class Ops:
    """See bench/ops_library.h."""

    def __init__(self, path, device):
        self.library = ctypes.CDLL(path)
        self.library.qtrain_open.restype = ctypes.c_void_p
        self.library.qtrain_open.argtypes = [ctypes.c_char_p]
        self.library.qtrain_stream.restype = ctypes.c_void_p
        self.library.qtrain_stream.argtypes = [ctypes.c_void_p]
        self.library.qtrain_call.argtypes = [ctypes.c_void_p, ctypes.POINTER(CCall)]
        self.library.qtrain_error.restype = ctypes.c_char_p
        self.session = self.library.qtrain_open(device.encode())
        if not self.session:
            sys.exit(self.library.qtrain_error().decode())

    def stream(self):
        return self.library.qtrain_stream(self.session)

    def call(self, op, tensors, numbers=()):
        """Queues an op. A tensor may be None (omitted)."""
        self.prepare(op, tensors, numbers)()

    def prepare(self, op, tensors, numbers=(), adds=()):
        """Returns the call as a function, so that only the call is timed. `adds`: indices of tensors to accumulate into."""
        array = (CTensor * len(tensors))()
        for c, t in zip(array, tensors):
            if t is None:
                continue
            assert t.is_contiguous() and 1 <= t.dim() <= 4
            c.data, c.dtype, c.rank = t.data_ptr(), DTYPES[t.dtype], t.dim()
            for i, extent in enumerate(t.shape):
                c.dims[i] = extent
        for i in adds:
            array[i].adds = 1
        values = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        call = CCall(op.encode(), array, values, len(tensors), len(numbers))

        def run(kept=(array, values, tensors)):
            if self.library.qtrain_call(self.session, ctypes.byref(call)):
                raise RuntimeError(f"{op}: {self.library.qtrain_error().decode()}")
        return run


class Bench:
    def __init__(self, args):
        self.args, self.device, self.figures, self.notes = args, args.device, [], []
        self.ops = Ops(args.library, args.device)
        self.generator = torch.Generator(self.device).manual_seed(1)
        self.deadline = STARTED + args.seconds
        self.flops_per_second = None  # of the largest GEMM
        self.goals = gpu_card.goals(torch.cuda.get_device_name() if self.device == "cuda" else None)

    def random(self, *shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=self.device, dtype=torch.float32, generator=self.generator).to(dtype)

    def empty(self, *shape, dtype=torch.bfloat16):
        return torch.full(shape, float("nan"), device=self.device, dtype=dtype)

    def compiled(self, function):
        """Keeps intermediate results in float32, so errors are measured against the eager function's."""
        return function if self.args.no_compile else torch.compile(function)

    def first_of(self, peer, run):
        """Returns a peer's result, or None if it does not run here: an imported library may not support this GPU, or
        run out of memory."""
        try:
            return run()
        except Exception as problem:
            self.notes.append(f"ours alone; {peer}: {(str(problem).splitlines() or [type(problem).__name__])[0]}")
            return None

    def copies(self, make):
        """Enough sets of inputs to exceed the cache."""
        first = make()
        size = sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor))
        count = 1 if self.args.small else max(1, min(16, -(-ROTATED // size)))
        return [first] + [make() for _ in range(count - 1)]

    def once(self, run):
        if self.device == "cpu":
            begin = time.perf_counter()
            run()
            return (time.perf_counter() - begin) * 1e3
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(HEAD_START)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def times(self, variants):
        """Medians in milliseconds of {name: [a function per set of inputs]}, alternating."""
        for runs in variants.values():
            for i in range(1 if self.args.small else 3):
                self.once(runs[i % len(runs)])
        measured = {name: [] for name in variants}
        begin, rounds = time.monotonic(), 0
        while rounds < (1 if self.args.small else 10) or (rounds < 50 and time.monotonic() - begin < self.args.case_seconds):
            for name, runs in variants.items():
                measured[name].append(self.once(runs[rounds % len(runs)]))
            rounds += 1
        return {name: statistics.median(t) for name, t in measured.items()}

    def copy_time(self, size):
        """Milliseconds of a copy that reads and writes `size` bytes in total: the time of a memory-bound kernel."""
        n = max(size // 4, 1)
        sets = self.copies(lambda: (self.empty(n), self.empty(n)))
        return self.times({"copy": [self.ops.prepare("copy", (y, x)) for x, y in sets]})["copy"]

    def report(self, figure, times, goals, errors=None, **more):
        """Reports one figure per reference: `goals` is {reference: ratio}. Returns whether our result is correct."""
        worst = 0.0
        for ours, theirs in errors or ():
            bound = ERROR_SLACK * theirs + 1e-6
            worst = max(worst, ours / bound) if ours == ours else float("inf")
        for reference, goal in goals.items():
            if reference not in times:
                continue
            ratio = times[reference] / times["ours"]
            entry = dict(figure=f"{figure} / {reference}", value=ratio, goal=goal, ours_ms=times["ours"],
                         torch_ms=times[reference], right=worst <= 1,
                         errors=[dict(ours=o, torch=t) for o, t in errors or ()], **more)
            self.figures.append(entry)
            mark = "" if worst <= 1 else "  WRONG: the error is %.2f times the allowed one" % worst
            print(f"{entry['figure']:<58} {times['ours']:9.3f} ms {times[reference]:9.3f} ms  {ratio:6.2f}  "
                  f"goal {goal}{mark}", flush=True)
        return worst <= 1

    def rate(self, figure, value, goal, right):
        """Reports a figure of our kernel only; the goal is for this GPU, or None."""
        self.figures.append(dict(figure=figure, value=value, goal=goal, right=right))
        print(f"{figure:<58} {value:9.3f}  goal {'none for this GPU' if goal is None else goal}", flush=True)


def error(got, want):
    """Relative error of whole tensors; NaN stays NaN."""
    got, want = got.float(), want.float()
    return ((got - want).norm() / want.norm().clamp_min(1e-30)).item()


def errors_of(ours, theirs, exact):
    return [(error(a, e), error(b, e)) for a, b, e in zip(ours, theirs, exact)]


def rms(x, weight, eps=1e-6):
    return x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def copy_case(b):
    n = 1 << (12 if b.args.small else 29)
    sets = b.copies(lambda: (b.random(n), b.empty(n)))
    times = b.times({"ours": [b.ops.prepare("copy", (y, x)) for x, y in sets],
                     "torch": [lambda x=x, y=y: y.copy_(x) for x, y in sets]})
    sets[0][1].fill_(float("nan"))
    b.ops.call("copy", (sets[0][1], sets[0][0]))
    right = b.report("copy", times, {"torch": 1.0}, errors_of([sets[0][1]], [sets[0][0]], [sets[0][0]]),
                     bytes_per_second=4 * n / times["ours"] * 1e3, torch_bytes_per_second=4 * n / times["torch"] * 1e3)
    b.rate("copy, TB/s", 4 * n / times["ours"] / 1e9, b.goals["copy"] and b.goals["copy"] / 1e12, right)


def rms_norm_cases(b):
    T, C = (8, 64) if b.args.small else (16384, 4096)
    weight = b.random(C, dtype=torch.float32)
    plain = lambda x: rms(x, weight).to(x.dtype)
    compiled = b.compiled(plain)
    sets = b.copies(lambda: (b.random(T, C), b.random(T, C), b.empty(T, C), b.empty(T, dtype=torch.float32)))
    ours = [b.ops.prepare("rms_norm", (y, inv, x, weight), (1e-6,)) for x, _, y, inv in sets]
    x, _, y, _ = sets[0]
    ours[0]()
    errors = errors_of([y], [plain(x)], [rms(x.float(), weight)])
    times = b.times({"ours": ours, "torch.compile": [lambda x=q[0]: compiled(x) for q in sets]})
    b.report(f"RMSNorm fwd {T}x{C}", times, {"torch.compile": 1.05}, errors,
             bytes_per_second=4 * T * C / times["ours"] * 1e3)

    plain = lambda x, w: rms(x, w).to(torch.bfloat16)
    compiled = b.compiled(plain)

    def backward(function, x, dy):
        x, w = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = function(x, w)
        return lambda: torch.autograd.grad(y, (x, w), dy, retain_graph=True)
    dweight = b.empty(C, dtype=torch.float32)
    ours, theirs = [], []
    for x, dy, dx, inv in sets:
        inv.copy_(torch.rsqrt(x.float().pow(2).mean(-1) + 1e-6))
        ours.append(b.ops.prepare("rms_norm_grad", (dx, dweight, dy, x, weight, inv)))
        theirs.append(backward(compiled, x, dy))
    x, dy, dx = sets[0][:3]
    ours[0]()
    exact_x, exact_w = x.float().requires_grad_(), weight.clone().requires_grad_()
    exact = torch.autograd.grad(rms(exact_x, exact_w), (exact_x, exact_w), dy.float())
    errors = errors_of([dx, dweight], backward(plain, x, dy)(), exact)
    times = b.times({"ours": ours, "torch.compile": theirs})
    b.report(f"RMSNorm bwd {T}x{C}", times, {"torch.compile": 1.3}, errors)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * torch.cat((cos, cos), -1)[:, None] + turned * torch.cat((sin, sin), -1)[:, None]


def rope_cases(b):
    T, heads, D = (8, 4, 64) if b.args.small else (16384, 24, 128)  # 16 query and 8 key heads
    weight = b.random(D, dtype=torch.float32)
    angle = torch.arange(T, device=b.device, dtype=torch.float32)[:, None] * torch.rand(D // 2, device=b.device)
    cos, sin = angle.cos(), angle.sin()
    positions = torch.arange(T, device=b.device, dtype=torch.int32)

    def plain(x, weight):  # as transformers computes it
        y = (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight.to(x.dtype)
        return rotate(y, cos.to(x.dtype), sin.to(x.dtype))
    compiled = b.compiled(plain)
    sets = b.copies(lambda: (b.random(T, heads, D), b.random(T, heads, D), b.empty(T, heads, D),
                             b.empty(T, heads, dtype=torch.float32)))
    ours = [b.ops.prepare("rope", (y, x, cos, sin, positions, weight, inv), (1e-6,)) for x, _, y, inv in sets]
    for run in ours:  # leaves the norms for the gradients
        run()
    x, dy, y, _ = sets[0]
    errors = errors_of([y], [plain(x, weight)], [rotate(rms(x, weight), cos, sin)])
    times = b.times({"ours": ours, "torch.compile": [lambda q=q: compiled(q[0], weight) for q in sets],
                     "eager": [lambda q=q: plain(q[0], weight) for q in sets]})
    size = f"{T}x{heads}x{D}"
    b.report(f"qk-norm+RoPE fwd {size}", times, {"torch.compile": 1.3, "eager": 6.0}, errors,
             bytes_per_second=4 * y.numel() / times["ours"] * 1e3)

    def backward(function, x, dy):
        x, w = x.detach().requires_grad_(), weight.detach().requires_grad_()
        turned = function(x, w)
        return lambda: torch.autograd.grad(turned, (x, w), dy, retain_graph=True)
    dweight = b.empty(D, dtype=torch.float32)
    ours = [b.ops.prepare("rope_grad", (dx, dy, cos, sin, positions, x, weight, inv, dweight)) for x, dy, dx, inv in sets]
    ours[0]()
    exact_x, exact_w = x.float().requires_grad_(), weight.clone().requires_grad_()
    exact = torch.autograd.grad(rotate(rms(exact_x, exact_w), cos, sin), (exact_x, exact_w), dy.float())
    errors = errors_of([y, dweight], backward(plain, x, dy)(), exact)
    times = b.times({"ours": ours, "torch.compile": [backward(compiled, q[0], q[1]) for q in sets],
                     "eager": [backward(plain, q[0], q[1]) for q in sets]})
    b.report(f"qk-norm+RoPE bwd {size}", times, {"torch.compile": 1.3, "eager": 6.0}, errors,
             bytes_per_second=6 * y.numel() / times["ours"] * 1e3)


def swiglu_cases(b):
    T, width = (8, 64) if b.args.small else (8192, 14336)
    plain = lambda g, u: F.silu(g) * u
    compiled = b.compiled(plain)
    sets = b.copies(lambda: tuple(b.random(T, width) for _ in range(3)) + tuple(b.empty(T, width) for _ in range(3)))
    ours = [b.ops.prepare("swiglu", (y, g, u)) for g, u, _, y, _, _ in sets]
    g, u, dy, y, dg, du = sets[0]
    ours[0]()
    errors = errors_of([y], [plain(g, u)], [F.silu(g.float()) * u.float()])
    times = b.times({"ours": ours, "torch.compile": [lambda q=q: compiled(q[0], q[1]) for q in sets]})
    b.report(f"SwiGLU fwd {T}x{width}", times, {"torch.compile": 1.05}, errors)

    def backward(function, g, u, dy):
        g, u = g.detach().requires_grad_(), u.detach().requires_grad_()
        y = function(g, u)
        return lambda: torch.autograd.grad(y, (g, u), dy, retain_graph=True)
    ours = [b.ops.prepare("swiglu_grad", (q[4], q[5], q[2], q[0], q[1])) for q in sets]
    theirs = [backward(compiled, *q[:3]) for q in sets]
    ours[0]()
    exact_g, exact_u = g.float().requires_grad_(), u.float().requires_grad_()
    exact = torch.autograd.grad(F.silu(exact_g) * exact_u, (exact_g, exact_u), dy.float())
    errors = errors_of([dg, du], backward(plain, g, u, dy)(), exact)
    times = b.times({"ours": ours, "torch.compile": theirs})
    b.report(f"SwiGLU bwd {T}x{width}", times, {"torch.compile": 1.05}, errors)


def cross_entropy_case(b):
    n, V = (4, 100) if b.args.small else (4096, 151936)
    scale = torch.full((1,), 1 / n, device=b.device, dtype=torch.float64)
    targets = torch.randint(V, (n,), device=b.device, generator=b.generator)
    targets32 = targets.int()
    mean = b.compiled(lambda x: F.cross_entropy(x.float(), targets))

    def both(function, x):
        x = x.detach().requires_grad_()
        loss = function(x)
        return loss, torch.autograd.grad(loss, x)[0]
    eager = lambda x: F.cross_entropy(x.float(), targets)
    sets = b.copies(lambda: (b.random(n, V), b.empty(n, dtype=torch.float32)))
    x = sets[0][0].clone()
    theirs = both(eager, x)
    exact_x = x.float().requires_grad_()
    exact_loss = F.cross_entropy(exact_x, targets)
    exact = (exact_loss, torch.autograd.grad(exact_loss, exact_x)[0])
    ours = [b.ops.prepare("cross_entropy", (logits, loss, targets32, scale)) for logits, loss in sets]
    ours[0]()
    errors = errors_of([sets[0][1].mean(), sets[0][0]], theirs, exact)
    errors[0] = (errors[0][0], max(errors[0][1], 1e-6))  # a mean of float32 numbers in another order
    del exact_x, exact, theirs
    for logits, _ in sets:  # they have been overwritten by gradients
        logits.copy_(x)
    times = b.times({"ours": ours, "F.cross_entropy": [lambda q=q: both(eager, q[0]) for q in sets],
                     "torch.compile": [lambda q=q: both(mean, q[0]) for q in sets]})
    b.report(f"cross-entropy fwd+bwd {n}x{V}", times, {"F.cross_entropy": 4.0, "torch.compile": 1.3}, errors,
             bytes_per_second=4 * n * V / times["ours"] * 1e3)


def adamw_case(b):
    n = 1000 if b.args.small else 1 << 27
    lr, decay = 1e-3, 0.01
    make = lambda: [b.random(n, dtype=torch.float32) for _ in range(2)]
    (param, grad) = make()
    exact_param = torch.nn.Parameter(param.double())
    exact_param.grad = grad.double()
    torch.optim.AdamW([exact_param], lr=lr, weight_decay=decay).step()
    theirs = torch.nn.Parameter(param.clone())
    theirs.grad = grad
    optimizer = torch.optim.AdamW([theirs], lr=lr, weight_decay=decay, fused=True)
    optimizer.step()
    m, v = torch.zeros_like(param), torch.zeros_like(param)
    control = torch.tensor([lr, 1 - 0.9, 1 - 0.999], device=b.device, dtype=torch.float64)
    factor = torch.ones(2, device=b.device, dtype=torch.float64)
    ours = b.ops.prepare("adamw", (param, m, v, grad, control, factor), (decay,))
    ours()
    errors = errors_of([param], [theirs.detach()], [exact_param.detach()])
    times = b.times({"ours": [ours], "torch fused": [optimizer.step]})
    times["copy of the same size"] = b.copy_time(28 * n)
    b.report(f"AdamW {n}", times, {"torch fused": 1.05, "copy of the same size": 0.9}, errors,
             bytes_per_second=28 * n / times["ours"] * 1e3)


def adamw8_case(b):
    n = 1024 if b.args.small else 1 << 27
    lr, decay = 1e-3, 0.01
    param, grad = (b.random(n, dtype=torch.float32) for _ in range(2))
    exact_param = torch.nn.Parameter(param.double())
    exact_param.grad = grad.double()
    torch.optim.AdamW([exact_param], lr=lr, weight_decay=decay).step()
    ours_param = param.clone()
    codes = [torch.zeros(n, device=b.device, dtype=torch.uint8) for _ in range(2)]
    scales = [torch.zeros(n // 256, device=b.device) for _ in range(2)]
    control = torch.tensor([lr, 1 - 0.9, 1 - 0.999], device=b.device, dtype=torch.float64)
    factor = torch.ones(2, device=b.device, dtype=torch.float64)
    ours = b.ops.prepare("adamw_8bit", (ours_param, codes[0], scales[0], codes[1], scales[1], grad, control, factor),
                         (decay,))
    ours()
    first = ours_param.clone()  # result of the first step, where no update was rounded yet
    variants, goals = {"ours": [ours]}, {"copy of the same size": 0.85}
    errors = [(error(first, exact_param.detach()), 1e-6)]
    theirs = torch.nn.Parameter(param.clone())
    theirs.grad = grad

    def first_step():
        optimizer = bitsandbytes.optim.AdamW8bit([theirs], lr=lr, weight_decay=decay)
        optimizer.step()
        return optimizer.step
    step = b.first_of("8-bit AdamW of bitsandbytes", first_step) if bitsandbytes else None
    if step:
        errors = errors_of([first], [theirs.detach()], [exact_param.detach()])
        variants["bitsandbytes"] = [step]
        goals["bitsandbytes"] = 1.5
    times = b.times(variants)
    times["copy of the same size"] = b.copy_time(16 * n)
    b.report(f"8-bit AdamW {n}", times, goals, errors, bytes_per_second=16 * n / times["ours"] * 1e3)


NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)


def nf4_case(b):
    """Dequantizes a matrix of the largest layer of an 8B model; blocks of 64 with scales in float32."""
    shape, block = ((8, 128) if b.args.small else (14336, 4096)), 64
    n = shape[0] * shape[1]
    table = torch.tensor(NF4, device=b.device)

    def coded():
        x, codes = b.random(*shape), torch.empty(n // 2, 1, device=b.device, dtype=torch.uint8)
        scales = b.empty(n // block, dtype=torch.float32)
        b.ops.call("quantize4", (codes, scales, x), (block, 0))
        return codes, scales, b.empty(*shape)
    sets = b.copies(coded)
    ours = [b.ops.prepare("dequantize4", (y, codes, scales, table), (block,)) for codes, scales, y in sets]
    codes, scales, y = sets[0]
    ours[0]()
    wide = codes.view(-1).int()
    exact = (table[torch.stack((wide >> 4, wide & 15), -1).view(-1, block).long()] * scales[:, None]).view(shape)
    errors = errors_of([y], [exact.bfloat16()], [exact])
    variants, goals = {"ours": ours}, {"copy of the same size": 0.85}

    def first_call():
        functions = bitsandbytes.functional
        state = lambda scales: functions.QuantState(absmax=scales, shape=torch.Size(shape), code=table, blocksize=block,
                                                    quant_type="nf4", dtype=torch.bfloat16)
        calls = [lambda q=q, s=state(q[1]): functions.dequantize_4bit(q[0], s) for q in sets]
        calls[0]()
        return calls
    theirs = b.first_of("NF4 of bitsandbytes", first_call) if bitsandbytes else None
    if theirs:
        variants["bitsandbytes"] = theirs
        goals["bitsandbytes"] = 1.3
    times = b.times(variants)
    moved = int(2.5625 * n)
    times["copy of the same size"] = b.copy_time(moved)
    b.report(f"NF4 to bfloat16 {shape[0]}x{shape[1]}", times, goals, errors,
             bytes_per_second=moved / times["ours"] * 1e3)


def linear_loss_case(b):
    """The head of the 0.6B model with loss and both gradients, in chunks of 1 GiB of logits, as in a training step."""
    T, d, V, chunk = (16, 32, 96, 6) if b.args.small else (16384, 1024, 151936, 3533)
    h, w = b.random(T, d), b.random(V, d).mul_(d ** -0.5)
    dh, dw = b.empty(T, d), torch.zeros(V, d, device=b.device)
    logits, loss = b.empty(chunk, V), b.empty(T, dtype=torch.float32)
    targets = torch.randint(V, (T,), device=b.device, generator=b.generator)
    scale = torch.full((1,), 1 / T, device=b.device, dtype=torch.float64)
    calls = []
    for first in range(0, T, chunk):
        rows, part = slice(first, min(first + chunk, T)), logits[:min(chunk, T - first)]
        calls += [b.ops.prepare("gemm", (part, h[rows], w), (0, 1)),
                  b.ops.prepare("cross_entropy", (part, loss[rows], targets[rows].int(), scale)),
                  b.ops.prepare("gemm", (dh[rows], part, w), (0, 0)),
                  b.ops.prepare("gemm", (dw, part, h[rows]), (1, 0), adds=(0,))]

    def ours():
        for call in calls:
            call()

    def both(h, w):
        h, w = h.detach().requires_grad_(), w.detach().requires_grad_()
        value = F.cross_entropy((h @ w.t()).float(), targets)
        return (value, *torch.autograd.grad(value, (h, w)))
    ours()
    some = slice(0, min(T, 512))  # their gradients of h do not depend on other rows

    def of_some(h, w):
        h = h[some].detach().requires_grad_()
        values = F.cross_entropy((h @ w.t()).float(), targets[some], reduction="none")
        return values.detach(), torch.autograd.grad(values.sum() / T, h)[0]
    def of_the_weight(h, w, rows=1024):
        """Processes all rows in chunks: all logits in float32 would take 10 GB."""
        total = torch.zeros(V, d, device=b.device)
        for part, classes in zip(h.split(rows), targets.split(rows)):
            values = (part @ w.t()).float().requires_grad_()
            (change,) = torch.autograd.grad(F.cross_entropy(values, classes, reduction="sum") / T, values)
            total += (change.to(h.dtype).t() @ part).float()
        return total.to(w.dtype)
    errors = errors_of([loss[some], dh[some]], of_some(h, w), of_some(h.float(), w.float()))
    errors += errors_of([dw], [of_the_weight(h, w)], [of_the_weight(h.float(), w.float())])
    variants, goals = {"ours": [ours]}, {"the largest GEMM": 0.75}
    if b.first_of("linear + cross-entropy by PyTorch", lambda: both(h, w)) is not None:
        variants["transformers"] = [lambda: both(h, w)]
        goals["transformers"] = 1.6
    times = b.times(variants)
    flops = 6 * T * d * V
    if b.flops_per_second:
        times["the largest GEMM"] = flops / b.flops_per_second * 1e3
    b.report(f"linear + cross-entropy fwd+bwd {T}x{d}x{V}", times, goals, errors,
             flops_per_second=flops / times["ours"] * 1e3)


def lora_case(b):
    """The seven linear layers of a block of the 8B model with adapters of rank 16 over frozen weights, fwd and bwd."""
    m, T, r, s = MODELS["8B"], 8 if b.args.small else 4096, 16, 2.0
    shrink = 64 if b.args.small else 1
    d, q, k, f = (m[key] // shrink for key in ("d", "q", "k", "f"))
    layers = [dict(w=b.random(n, c).mul_(c ** -0.5), a=b.random(r, c).mul_(c ** -0.5), b=b.random(n, r),
                   x=b.random(T, c), dy=b.random(T, n), y=b.empty(T, n), dx=b.empty(T, c), xa=b.empty(T, r),
                   dxa=b.empty(T, r), da=torch.zeros(r, c, device=b.device), db=torch.zeros(n, r, device=b.device))
              for n, c in ((q, d), (k, d), (k, d), (d, q), (f, d), (f, d), (d, f))]
    calls = []
    for p in layers:
        calls += [b.ops.prepare("gemm", (p["xa"], p["x"], p["a"]), (0, 1, s)),
                  b.ops.prepare("gemm", (p["y"], p["x"], p["w"], p["xa"], p["b"]), (0, 1)),
                  b.ops.prepare("gemm", (p["db"], p["dy"], p["xa"]), (1, 0), adds=(0,)),
                  b.ops.prepare("gemm", (p["dxa"], p["dy"], p["b"]), (0, 0, s)),
                  b.ops.prepare("gemm", (p["da"], p["dxa"], p["x"]), (1, 0), adds=(0,)),
                  b.ops.prepare("gemm", (p["dx"], p["dy"], p["w"], p["dxa"], p["a"]), (0, 0))]

    def ours():
        for call in calls:
            call()

    def peft(p, dtype=torch.bfloat16):
        """As peft.tuners.lora.Linear computes it."""
        w, x, a, c, dy = (p[key].to(dtype) for key in ("w", "x", "a", "b", "dy"))
        x, a, c = (t.detach().requires_grad_() for t in (x, a, c))
        y = F.linear(x, w) + F.linear(F.linear(x, a), c) * s
        return (y.detach(), *torch.autograd.grad(y, (x, a, c), dy))
    ours()
    errors = []
    for p in (layers[1], layers[-1]):
        errors += errors_of([p["y"], p["dx"], p["da"], p["db"]], peft(p), peft(p, torch.float32))
    times = b.times({"ours": [ours], "PEFT's formula": [lambda: [peft(p) for p in layers]]})
    flops = 4 * T * sum(p["w"].numel() for p in layers)
    b.report(f"LoRA r={r} block 8B fwd+bwd T={T}", times, {"PEFT's formula": 1.5}, errors,
             flops_per_second=flops / times["ours"] * 1e3)


@contextlib.contextmanager
def backend(name):
    if name == "default":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel
    with sdpa_kernel({"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name]):
        yield


def torch_attention(q, k, v):
    """Input and output are [T, H, D]."""
    turn = lambda x: x.transpose(0, 1)[None]
    return F.scaled_dot_product_attention(turn(q), turn(k), turn(v), is_causal=True)[0].transpose(0, 1)


def attention_case(b, T, D):
    H = 4 if b.args.small else 16
    backends = ("default",) if b.device == "cpu" else ("cuDNN", "flash")
    goals = {"fwd": {"cuDNN": 0.60, "flash": 1.0, "default": 1.0}, "bwd": {"cuDNN": 0.62, "flash": 1.0, "default": 1.0}}
    borders = torch.tensor([0, T], device=b.device, dtype=torch.int32)
    flops = 2 * T * (T + 1) * H * D
    sets = b.copies(lambda: tuple(b.random(T, H, D) for _ in range(4)) + tuple(b.empty(T, H, D) for _ in range(4)) +
                    (b.empty(H, T, dtype=torch.float32),))
    forward = [b.ops.prepare("attention", (y, lse, q, k, v, borders), (D ** -0.5,))
               for q, k, v, dy, y, dq, dk, dv, lse in sets]
    gradient = [b.ops.prepare("attention_grad", (dq, dk, dv, dy, y, q, k, v, lse, borders), (D ** -0.5,))
                for q, k, v, dy, y, dq, dk, dv, lse in sets]
    for run in forward + gradient:
        run()

    def torch_forward(name, q, k, v):
        def run():
            with backend(name):
                return torch_attention(q, k, v)
        return run

    def torch_backward(name, q, k, v, dy):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        with backend(name):
            y = torch_attention(q, k, v)
        return lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)
    fwd, bwd = {"ours": forward}, {"ours": gradient}
    for name in backends:
        try:
            fwd[name] = [torch_forward(name, *s[:3]) for s in sets]
            bwd[name] = [torch_backward(name, *s[:4]) for s in sets]
            bwd[name][0]()
        except RuntimeError as problem:  # a backend that does not support this case
            print(f"SDPA {name}, hd{D}, T={T}: {problem}")
            fwd.pop(name, None), bwd.pop(name, None)
    errors = attention_errors(b, sets[0], fwd, bwd) if T <= 4096 else (None, None)
    more = dict(checked="at smaller sizes") if T > 4096 else {}
    times = b.times(fwd)
    b.report(f"attention fwd hd{D} T={T} causal", times, goals["fwd"], errors[0],
             flops_per_second=flops / times["ours"] * 1e3, **more)
    times = b.times(bwd)
    b.report(f"attention bwd hd{D} T={T} causal", times, goals["bwd"], errors[1],
             flops_per_second=2.5 * flops / times["ours"] * 1e3, **more)


def attention_errors(b, tensors, fwd, bwd):
    q, k, v, dy, y, dq, dk, dv, _ = tensors
    reference = next((name for name in fwd if name != "ours"), None)
    if reference is None:
        return None, None
    exact_in = [x.float().requires_grad_() for x in (q, k, v)]
    scores = torch.einsum("ihd,jhd->hij", exact_in[0], exact_in[1]) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=b.device).triu(1)
    exact = torch.einsum("hij,jhd->ihd", scores.masked_fill(hidden, float("-inf")).softmax(-1), exact_in[2])
    forward = errors_of([y], [fwd[reference][0]()], [exact])
    backward = errors_of([dq, dk, dv], bwd[reference][0](), torch.autograd.grad(exact, exact_in, dy.float()))
    return forward, backward


def packed_case(b):
    """Compares documents of different lengths with documents of one length, by FLOPs per second."""
    one = 8 if b.args.small else 512
    H, D = 16, 128
    lengths = {"dense": [4 * one] * 8, "packed": [6 * one, 2 * one, 5 * one, 3 * one, 8 * one, one, 4 * one, 3 * one]}
    T = sum(lengths["dense"])
    times, flops = {}, {}
    sets = b.copies(lambda: tuple(b.random(T, H, D) for _ in range(4)) + tuple(b.empty(T, H, D) for _ in range(4)) +
                    (b.empty(H, T, dtype=torch.float32),))
    for way in ("fwd", "bwd"):
        variants = {}
        for name, list_of in lengths.items():
            cu = torch.tensor([0] + list_of, device=b.device).cumsum(0).int()
            forward = [b.ops.prepare("attention", (s[4], s[8], *s[:3], cu), (D ** -0.5,)) for s in sets]
            gradient = [b.ops.prepare("attention_grad", (*s[5:8], s[3], s[4], *s[:3], s[8], cu), (D ** -0.5,))
                        for s in sets]
            for run in forward:
                run()
            variants[name] = forward if way == "fwd" else gradient
            flops[name] = sum(2 * n * (n + 1) * H * D for n in list_of) * (1 if way == "fwd" else 2.5)
        times = b.times(variants)
        # The time that the dense batch would take for the same FLOPs.
        b.report(f"packed attention {way} hd{D} T={T}",
                 {"ours": times["packed"], "own dense": times["dense"] * flops["packed"] / flops["dense"]},
                 {"own dense": 0.95}, flops_per_second=flops["packed"] / times["packed"] * 1e3)


MODELS = {"0.6B": dict(d=1024, q=2048, k=1024, f=3072, V=151936), "8B": dict(d=4096, q=4096, k=1024, f=14336, V=128256)}


def add_gemm(dw, dy, x):
    """dw += dyt x with dw in float32 in one kernel: only newer versions support it, and only on a GPU."""
    torch.addmm(dw, dy.t(), x, out_dtype=torch.float32, out=dw)


def add_rounded_gemm(dw, dy, x):
    """dw += dyt x as autograd under autocast does it: a bfloat16 GEMM, then added to the gradient in float32."""
    dw.add_(dy.t() @ x)


def weight_gradient(b):
    """PyTorch's closest equivalent of a GEMM that accumulates into a float32 gradient, with a description."""
    x, dw = torch.ones(64, 64, device=b.device, dtype=torch.bfloat16), torch.ones(64, 64, device=b.device)
    try:
        add_gemm(dw, x, x)
        if (dw == 65).all():
            return add_gemm, "torch.addmm(out_dtype=float32) into a float32 gradient"
    except (RuntimeError, TypeError) as problem:
        print(f"torch.addmm(out_dtype=float32): {str(problem).splitlines()[0]}")
    return add_rounded_gemm, "a bfloat16 GEMM, added to a float32 gradient by a second kernel"


def gemm_case(b, M, N, K, names=("y", "dx", "dw")):
    """y = x Wt, dx = dy W and dW += dyt x (in float32) of one layer: {name: (medians in milliseconds, errors)}."""
    sets = b.copies(lambda: (b.random(M, K), b.random(N, K), b.random(M, N), b.empty(M, N), b.empty(M, K),
                             b.random(N, K, dtype=torch.float32).mul_(M ** 0.5)))
    add = weight_gradient(b)[0] if "dw" in names else None
    # For each GEMM: our tensors and numbers, the GEMM, PyTorch's equivalent, the indices of accumulated tensors.
    gemms = {
        "y": (lambda x, w, dy, y, dx, dw: ((y, x, w), (0, 1)), lambda x, w, dy: x @ w.t(), None, ()),
        "dx": (lambda x, w, dy, y, dx, dw: ((dx, dy, w), (0, 0)), lambda x, w, dy: dy @ w, None, ()),
        "dw": (lambda x, w, dy, y, dx, dw: ((dw, dy, x), (1, 0)), lambda x, w, dy: dy.t() @ x,
               lambda x, w, dy, y, dx, dw: add(dw, dy, x), (0,))}
    result = {}
    for name in names:
        ours, gemm, way, adds = gemms[name]
        runs = [b.ops.prepare("gemm", *ours(*s), adds=adds) for s in sets]
        rows = slice(0, 64)  # enough to detect a wrong GEMM
        out = ours(*sets[0])[0][0][rows]
        before = out.clone() if adds else 0
        runs[0]()
        exact = gemm(*(t.float() for t in sets[0][:3]))[rows] if M * N < 1 << 28 else None
        errors = errors_of([out], [before + gemm(*sets[0][:3])[rows]], [before + exact]) if exact is not None else []
        theirs = [lambda s=s: way(*s) if way else gemm(*s[:3]) for s in sets]
        result[name] = (b.times({"ours": runs, "torch.matmul": theirs}), errors)
    return result


def gemm_list_case(b, name):
    m, M = MODELS[name], 64 if b.args.small else 16384
    shrink = 32 if b.args.small else 1
    layers = [(m["q"], m["d"], 1), (m["k"], m["d"], 2), (m["d"], m["q"], 1), (m["f"], m["d"], 2), (m["d"], m["f"], 1)]
    total, errors = {"ours": 0.0, "torch.matmul": 0.0}, []
    for N, K, count in layers:
        for times, more in gemm_case(b, M, N // shrink, K // shrink).values():
            errors += more
            for variant in total:
                total[variant] += count * times[variant]
    flops = 6 * M * sum(N * K * c for N, K, c in layers) / shrink ** 2
    b.report(f"GEMM list of a layer {name} M={M}", total, {"torch.matmul": 1.0}, errors,
             flops_per_second=flops / total["ours"] * 1e3, torch_weight_gradient=weight_gradient(b)[1])


def peak_case(b):
    n = 64 if b.args.small else 8192
    times, errors = gemm_case(b, n, n, n, ("y",))["y"]
    b.flops_per_second = 2 * n ** 3 / times["ours"] * 1e3
    right = b.report(f"GEMM {n}^3", times, {"torch.matmul": 1.0}, errors, flops_per_second=b.flops_per_second,
                     torch_flops_per_second=2 * n ** 3 / times["torch.matmul"] * 1e3)
    b.rate(f"GEMM {n}^3, TFLOP/s", b.flops_per_second / 1e12, b.goals["gemm"] and b.goals["gemm"] / 1e12, right)


def cases(b):
    """In order of importance, since time may run out; cases that need compilers take long and come last."""
    lengths = (32,) if b.args.small else (2048, 4096, 8192, 16384)
    yield "copy", lambda: copy_case(b)
    yield "peak", lambda: peak_case(b)
    for name in MODELS:
        yield f"gemm {name}", lambda: gemm_list_case(b, name)
    for T in lengths:
        yield f"attention hd128 {T}", lambda: attention_case(b, T, 128)
    yield "adamw", lambda: adamw_case(b)
    yield "linear_loss", lambda: linear_loss_case(b)
    yield "lora", lambda: lora_case(b)
    yield "nf4", lambda: nf4_case(b)
    yield "adamw8", lambda: adamw8_case(b)
    yield "packed", lambda: packed_case(b)
    yield "cross_entropy", lambda: cross_entropy_case(b)
    yield "rms_norm", lambda: rms_norm_cases(b)
    yield "rope", lambda: rope_cases(b)
    yield "swiglu", lambda: swiglu_cases(b)
    for T in lengths:
        yield f"attention hd64 {T}", lambda: attention_case(b, T, 64)


def environment(args):
    about = dict(torch=torch.__version__, device=args.device, argv=sys.argv)
    if args.device == "cuda":
        about |= dict(gpu=torch.cuda.get_device_name(), cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(),
                      cudnn_sdp=torch.backends.cuda.cudnn_sdp_enabled(), flash_sdp=torch.backends.cuda.flash_sdp_enabled())
    print(json.dumps(about), flush=True)
    return about


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json")
    parser.add_argument("--small", action="store_true", help="tiny shapes, one round")
    parser.add_argument("--no_compile", action="store_true", help="use eager functions instead of torch.compile")
    parser.add_argument("--seconds", type=float, default=150,
                        help="start no case later than this after the import of PyTorch")
    parser.add_argument("--case_seconds", type=float, default=0.4, help="approximate measuring time per case")
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    # Compiled gradients are computed repeatedly from one forward pass, so its buffers must be kept.
    torch._functorch.config.donated_buffer = False
    b = Bench(args)
    result = dict(environment=environment(args), figures=b.figures, problems=[], notes=b.notes)
    stream = contextlib.nullcontext() if args.device == "cpu" else torch.cuda.stream(torch.cuda.ExternalStream(b.ops.stream()))
    with stream:
        for name, run in cases(b):
            if args.filter not in name:
                continue
            if time.monotonic() > b.deadline:
                result["notes"].append(f"{name}: skipped, no time was left")
                continue
            try:
                run()
            except Exception as problem:  # one case must not stop the others
                traceback.print_exc()
                result["problems"].append(f"{name}: {problem}")
            if args.device == "cuda":
                torch.cuda.empty_cache()
            if args.json:  # replaced atomically, since the program may be stopped
                with open(args.json + ".tmp", "w", encoding="utf-8") as file:
                    json.dump(result, file, indent=1)
                os.replace(args.json + ".tmp", args.json)
    wrong = [f["figure"] for f in b.figures if not f["right"]]
    for line in result["problems"] + result["notes"] + [f"wrong: {w}" for w in wrong]:
        print(line)
    sys.exit(bool(result["problems"] or wrong))


if __name__ == "__main__":
    main()
