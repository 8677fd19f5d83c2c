"""Compares two data folders: the committed one and a new one."""

import json
import math
from pathlib import Path

from safetensors.torch import load_file

EXACT_F64 = 2e-6  # float64 runs
CURVE = 2e-4      # float32 steps, amplified by AdamW
IGNORED = ("spread", "transformers_version", "peft_version", "smallest_lead", "loss_mean_f32")


def files(root):
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def differ(a, b, tolerance):
    """Why two JSON values differ, or nothing."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = (a.keys() | b.keys()) - set(IGNORED)
        return next((f"{k}: {why}" for k in sorted(keys) if (why := differ(a.get(k), b.get(k), tolerance))), "")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next((f"[{i}] {why}" for i in range(len(a)) if (why := differ(a[i], b[i], tolerance))), "")
    if isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance):
        return ""
    return "" if a == b else f"{a} is not {b}"


def differ_json(made, kept, tolerance):
    if made.suffix == ".jsonl":
        made, kept = ([json.loads(line) for line in p.read_text().splitlines()] for p in (made, kept))
        return differ(made, kept, 0)
    return differ(json.loads(made.read_text()), json.loads(kept.read_text()), tolerance)


def differ_tensors(made, kept, tolerance):
    a, b = load_file(made), load_file(kept)
    if a.keys() != b.keys():
        return f"tensors {sorted(a.keys() ^ b.keys())}"
    for name in a:
        if a[name].shape != b[name].shape or a[name].dtype != b[name].dtype:
            return f"{name}: shape or type"
        distance = (a[name].double() - b[name].double()).norm().item()
        if distance > tolerance * max(1e-6, b[name].double().norm().item()):
            return f"{name}: differs by {distance:.3g}"
    return ""


def tolerance_of(name):
    if "curves/" in name:
        return CURVE if "expected" in name else 0
    return EXACT_F64 if "expected" in name else 1e-12 if "schedules" in name else 0


def report(made, kept):
    """Prints each difference; returns 0 if there is none."""
    mine, theirs = files(made), files(kept)
    wrong = [f"{n}: only in one of them" for n in sorted(mine ^ theirs)]
    for name in sorted(mine & theirs):
        look = differ_tensors if Path(name).suffix == ".safetensors" else differ_json
        if why := look(made / name, kept / name, tolerance_of(name)):
            wrong.append(f"{name}: {why}")
    print("\n".join(wrong) or f"{len(mine)} files as committed")
    return 1 if wrong else 0
