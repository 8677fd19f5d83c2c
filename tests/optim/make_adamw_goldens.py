"""Writes goldens/adamw.json: what torch.optim.AdamW and clip_grad_norm_ do to two small parameters over some steps, one
with weight decay and one without. Needs torch: python make_adamw_goldens.py"""

import json
import pathlib

import torch

# learning rate of each step; 0 as in the first step of a warm-up
RATES = [0.0, 1e-2, 2e-2, 5e-3, 1e-3]
CASES = [
    dict(name="defaults", betas=[0.9, 0.999], eps=1e-8, weight_decay=0.01, max_norm=0.0),
    dict(name="clipped", betas=[0.9, 0.95], eps=1e-6, weight_decay=0.1, max_norm=1.0),
    dict(name="no_decay_large_eps", betas=[0.5, 0.9], eps=0.1, weight_decay=0.0, max_norm=0.3),
]
SHAPES = dict(decayed=[3, 5], plain=[7])


def numbers(generator, shape, scale):
    """Values that f32 holds exactly."""
    return (torch.randn(shape, generator=generator) * scale).double()


def run(case, dtype):
    g = torch.Generator().manual_seed(1)
    params = {n: torch.nn.Parameter(numbers(g, s, 0.5).to(dtype)) for n, s in SHAPES.items()}
    groups = [dict(params=[params["decayed"]], weight_decay=case["weight_decay"]),
              dict(params=[params["plain"]], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, betas=case["betas"], eps=case["eps"], foreach=False)
    flat = lambda t: t.detach().double().flatten().tolist()
    start, steps = {n: flat(p) for n, p in params.items()}, []
    for i, rate in enumerate(RATES):
        # The second step has tiny gradients, the third none at all.
        scale = [1.0, 1e-6, 0.0, 2.0, 0.3][i]
        for p in params.values():
            p.grad = numbers(g, p.shape, scale).to(dtype)
        grads = {n: flat(p.grad) for n, p in params.items()}
        norm = torch.nn.utils.clip_grad_norm_(params.values(), case["max_norm"] or float("inf")).item()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        steps.append(dict(learning_rate=rate, grads=grads, norm=norm, values={n: flat(p) for n, p in params.items()}))
    moments = {n: {k: flat(optimizer.state[p][k]) for k in ("exp_avg", "exp_avg_sq")} for n, p in params.items()}
    return dict(**case, start=start, steps=steps, moments=moments)


if __name__ == "__main__":
    out = pathlib.Path(__file__).parent / "goldens" / "adamw.json"
    out.parent.mkdir(exist_ok=True)
    runs = [run(c, torch.float64) for c in CASES]
    # How far f32 is from f64, which the tolerance of a test in f32 has to allow for.
    for golden, case in zip(runs, CASES):
        f32 = run(case, torch.float32)
        golden["f32_spread"] = max(abs(a - b) for s, t in zip(golden["steps"], f32["steps"])
                                   for n in SHAPES for a, b in zip(s["values"][n], t["values"][n]))
    out.write_text(json.dumps(dict(shapes=SHAPES, cases=runs), indent=1) + "\n")
