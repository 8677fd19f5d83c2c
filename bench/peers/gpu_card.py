"""The GPU of this machine according to nvidia-smi, and the goals for its copies and GEMMs.

The goals for a GPU are values measured on it; for other GPUs the goal is a fraction of the data sheet's bandwidth
(plan/gpus.yaml), and there is none for GEMMs, which the power limit determines."""

import re
import subprocess
import sys
from pathlib import Path

GOALS_OF = "H200"  # the GPU that goals in tokens per second are for
# bytes and FLOPs per second
MEASURED = {"H200": dict(copy=4.3e12, gemm=790e12), "H100 80GB": dict(copy=3.0e12, gemm=790e12)}
COPY_SHARE = 0.89  # fraction of the data sheet's bandwidth; the two GPUs above reach 0.9
ROW = re.compile(r"^  ([^:#]+): \{.*\bbandwidth: ([\d.]+),", re.M)
MIB = 2**20


def table():
    """{GPU: bytes per second according to its data sheet}"""
    text = (Path(__file__).resolve().parents[2] / "plan/gpus.yaml").read_text(encoding="utf-8")
    return {name: float(bandwidth) * 1e9 for name, bandwidth in ROW.findall(text)}


def model_of(name):
    """The row of gpus.yaml for a driver's device name: the longest one whose words all occur in the name."""
    words = set(re.split(r"[\s-]+", name or ""))
    found = [row for row in table() if set(row.split()) <= words]
    return max(found, key=lambda row: len(row.split()), default=None)


def goals(name):
    """{copy: bytes per second, gemm: FLOPs per second} for a driver's device name; None if there is no goal."""
    model = model_of(name)
    if model in MEASURED:
        return MEASURED[model]
    return dict(copy=COPY_SHARE * table()[model] if model else None, gemm=None)


def asked(command, timeout=20):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def card():
    """{name, total_bytes, used_bytes, free_bytes} of the first GPU, from another process; {} if unknown."""
    keys = "name,memory.total,memory.used,memory.free"
    lines = asked(["nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader,nounits"]).splitlines()
    parts = [p.strip() for p in lines[0].split(",")] if lines else []
    if len(parts) == 4 and all(p.isdigit() for p in parts[1:]):
        total, used, free = (int(p) * MIB for p in parts[1:])
        return dict(name=parts[0], total_bytes=total, used_bytes=used, free_bytes=free)
    code = "import torch; print(torch.cuda.get_device_name(), *torch.cuda.mem_get_info(), sep='\\n')"
    lines = asked([sys.executable, "-c", code], 60).splitlines()
    if len(lines) != 3:
        return {}
    free, total = int(lines[1]), int(lines[2])  # used includes what this other process takes
    return dict(name=lines[0], total_bytes=total, used_bytes=total - free, free_bytes=free)


if __name__ == "__main__":
    import json
    print(json.dumps(card()))
