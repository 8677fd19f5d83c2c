"""Writes goldens/optimizers.json and goldens/optimizers.safetensors: what the optimizers of torch, transformers and
bitsandbytes do to small parameters over some steps, clipped by clip_grad_norm_. Needs torch, transformers, bitsandbytes,
safetensors and numpy: python make_optimizer_goldens.py

The 8-bit optimizers of bitsandbytes run on the CPU with one change: its library codes values by a table of 65536 steps,
which rounds small second moments to zero; here they get the nearest code, as the published algorithm has it."""

import json
import pathlib

import bitsandbytes as bnb
import bitsandbytes.backends.cpu.ops as bnb_cpu
import numpy as np
import torch
import transformers
from bitsandbytes.optim import GlobalOptimManager
from safetensors.numpy import save_file

RATES = [1e-2, 2e-2, 0.0, 1e-2, 5e-3, 5e-3, 5e-3, 2e-3, 1e-3, 1e-3]
# The magnitude of each step's gradients: some tiny, one zero, and some that are clipped.
SCALES = [1.0, 1e-6, 0.0, 2.0, 0.3, 0.3, 1e-3, 5.0, 0.1, 0.1]
BETAS = (0.9, 0.95)
DECAY, EPS, MAX_NORM = 0.1, 1e-8, 1.0
# "table" is an embedding; the large parameters have coded state, with a shorter last block.
SMALL = dict(matrix=[3, 5], tall=[7, 4], vector=[6])
LARGE = dict(coded=[65, 64], table=[65, 64], small=[63, 65])


def nearest_codes(values, code, absmax_out, out, blocksize):
    """Codes and scales in numpy: x times 1 / absmax, rounded to the nearest value of the map."""
    x, table = values.numpy().reshape(-1), code.numpy()
    middle = (table[1:] + table[:-1]) / np.float32(2)
    codes, scales = np.empty(x.size, np.uint8), []
    for begin in range(0, x.size, blocksize):
        block = x[begin : begin + blocksize]
        absmax = np.abs(block).max()
        scales.append(absmax)
        scaled = block * (np.float32(1) / absmax if absmax > 0 else np.float32(0))
        codes[begin : begin + blocksize] = np.searchsorted(middle, scaled, side="left")
    out.copy_(torch.from_numpy(codes).reshape(out.shape))
    absmax_out.copy_(torch.tensor(np.array(scales)))


bnb_cpu._quant_blockwise_fp32_direct = nearest_codes


def torch_adamw(groups, **options):
    return torch.optim.AdamW(groups, betas=BETAS, eps=EPS, foreach=False, **options)


def bnb_kind(kind):
    def make(groups):
        options = dict(betas=BETAS) if "Lion" in kind else dict(betas=BETAS, eps=EPS)
        return getattr(bnb.optim, kind)(groups, **options)

    return make


class MuonAndAdamW:
    """Muon for matrices, AdamW for everything else."""

    def __init__(self, groups, **options):
        matrices = [dict(g, params=[p for p in g["params"] if p.ndim == 2]) for g in groups]
        others = [dict(g, params=[p for p in g["params"] if p.ndim != 2]) for g in groups]
        self.parts = [torch.optim.Muon([g for g in matrices if g["params"]], **options),
                      torch_adamw([g for g in others if g["params"]])]
        self.param_groups = [g for part in self.parts for g in part.param_groups]

    def step(self):
        for part in self.parts:
            part.step()


CASES = [
    dict(name="lion", optim="lion_32bit", make=bnb_kind("Lion32bit")),
    dict(name="sgd", optim="sgd", make=lambda g: torch.optim.SGD(g, foreach=False)),
    dict(name="sgd_momentum", optim="sgd", args="momentum=0.9, dampening=0.3",
         make=lambda g: torch.optim.SGD(g, momentum=0.9, dampening=0.3, foreach=False)),
    dict(name="sgd_nesterov", optim="sgd", args="momentum=0.8,nesterov=True",
         make=lambda g: torch.optim.SGD(g, momentum=0.8, nesterov=True, foreach=False)),
    dict(name="adafactor", optim="adafactor",
         make=lambda g: transformers.Adafactor(g, lr=1.0, scale_parameter=False, relative_step=False)),
    dict(name="muon", optim="muon", make=MuonAndAdamW),
    dict(name="muon_arguments", optim="muon", args="momentum=0.8,nesterov=false,ns_steps=3,adjust_lr_fn=match_rms_adamw",
         make=lambda g: MuonAndAdamW(g, momentum=0.8, nesterov=False, ns_steps=3, adjust_lr_fn="match_rms_adamw")),
    dict(name="adamw_8bit", optim="adamw_bnb_8bit", make=bnb_kind("AdamW8bit")),
    dict(name="lion_8bit", optim="lion_8bit", make=bnb_kind("Lion8bit")),
]


def numbers(shape, step, which, scale):
    """Values in [-1, 1] times a scale, most of them small. The test computes the same numbers; step 0 is the initial
    value."""
    with np.errstate(over="ignore"):
        h = (np.arange(1, np.prod(shape) + 1, dtype=np.uint32) * np.uint32(2654435761)
             + np.uint32(step + 1) * np.uint32(2246822519) + np.uint32(which + 1) * np.uint32(3266489917))
        h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
    v = ((h >> np.uint32(16)).astype(np.float32) - np.float32(32768)) / np.float32(32768)
    return torch.from_numpy((v * v * v * np.float32(scale)).reshape(shape))


def shortened(values):
    """Rounds to multiples of 2^-23, a fraction of the smallest tolerance of the tests (1e-6), so that goldens pack well."""
    return np.round(values.astype(np.float64) * 2**23).astype(np.float32) / np.float32(2**23) if values.dtype == np.float32 else values


def state_of(optimizer, p):
    parts = getattr(optimizer, "parts", [optimizer])
    state = next((part.state[p] for part in parts if p in part.state), {})
    return {k: v for k, v in state.items() if torch.is_tensor(v) and v.ndim > 0 and not k.startswith("qmap")}


def embeddings_in_f32(params):
    """Keeps embeddings in f32, as transformers' Trainer configures bitsandbytes."""
    manager = GlobalOptimManager.get_instance()
    manager.initialize()
    manager.register_parameters(list(params.values()))
    if "table" in params:
        manager.override_config(params["table"], "optim_bits", 32)


def run(case):
    """Tensors by name: the values of parameters after each step (for large ones after the last step only), and the
    state."""
    large = "8bit" in case["name"]
    shapes = LARGE if large else SMALL
    params = {n: torch.nn.Parameter(numbers(s, 0, i, 0.5)) for i, (n, s) in enumerate(shapes.items())}
    if large:
        embeddings_in_f32(params)
    decayed = [p for p in params.values() if p.ndim == 2]
    plain = [p for p in params.values() if p.ndim != 2]
    groups = [dict(params=ps, weight_decay=d) for ps, d in ((decayed, DECAY), (plain, 0.0)) if ps]
    optimizer, steps = case["make"](groups), []
    for step, (rate, scale) in enumerate(zip(RATES, SCALES), start=1):
        for i, p in enumerate(params.values()):
            p.grad = numbers(p.shape, step, i, scale)
        torch.nn.utils.clip_grad_norm_(params.values(), MAX_NORM)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        steps.append({n: p.detach().flatten().clone() for n, p in params.items()})
    tensors = {n: torch.stack([s[n] for s in steps[-1 if large else 0:]]) for n in params}
    for n, p in params.items():
        if n != "coded" and large:
            continue
        tensors.update({f"{n}.{k}": v.flatten() for k, v in state_of(optimizer, p).items()})
    return {f"{case['name']}.{n}": shortened(np.ascontiguousarray(t.numpy())) for n, t in tensors.items()}


if __name__ == "__main__":
    out = pathlib.Path(__file__).parent / "goldens"
    tensors = {}
    for case in CASES:
        tensors.update(run(case))
    save_file(tensors, out / "optimizers.safetensors")
    cases = [dict(name=c["name"], optim=c["optim"], optim_args=c.get("args", ""),
                  shapes=LARGE if "8bit" in c["name"] else SMALL) for c in CASES]
    settings = dict(rates=RATES, scales=SCALES, betas=BETAS, eps=EPS, weight_decay=DECAY, max_norm=MAX_NORM)
    (out / "optimizers.json").write_text(json.dumps(dict(**settings, cases=cases), indent=1) + "\n")
