#!/usr/bin/env python3
"""Profiles the kernels that took most of a step with Nsight Compute, each on its own in `qtrain bench`.

    scripts/gpu_profile.py --prebuilt DIR --results build/gpu_suite/results.json
    scripts/gpu_profile.py --prebuilt DIR --results results.json --dry-run      # only prints the commands

The kernels are those with the largest share of a step in all attributions of scripts/gpu_suite.sh, except GEMMs, which
are cuBLASLt's; if the results have no attribution, those that were predicted to take the most time. For each kernel, one
launch of every size is profiled after three warm-up launches. OUT/profile (OUT: build/gpu_suite) gets NAME.ncu-rep, NAME.txt
(the report, section by section), NAME.source.csv (where warps wait, by instruction) and profile.json (how each kernel
ended). The kernels share the available time equally. Exits with 0 if all were profiled."""

import argparse
import glob
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "LaunchStats", "Occupancy", "SchedulerStats",
            "WarpStateStats", "InstructionStats", "SourceCounters")
# By the name of the launch: the beginning of its function names, as a regular expression, and the case of `qtrain bench`
# that runs it.
KERNELS = {
    "attention": ("attention_(tile|warpgroups)", "attention/hd128/4096"),
    "attention_delta": ("attention_delta", "attention_grad/hd128/4096"),
    "attention_grad": ("attention_grad_(tile|warpgroups)", "attention_grad/hd128/4096"),
    "rope": ("rope_heads", "qk_norm_rope/"),
    "normed_rope_grad": ("normed_rope_heads_grad", "qk_norm_rope_grad/"),
    "rms_norm": ("rms_norm_rows", "rms_norm/"),
    "rms_norm_grad": ("rms_norm_rows_grad", "rms_norm_grad/"),
    "glu": ("for_elements", "swiglu/"),
    "glu_grad": ("for_elements", "swiglu_grad/"),
    "add": ("for_elements", "add/"),
    "dropout": ("for_elements", "dropout/"),
    "adapter_grads": ("adapter_grads_tiles", "adapter_grads/"),
    "cross_entropy": ("cross_entropy_rows", "cross_entropy/"),
    "embedding_grad": ("embedding_rows_grad", "embedding_grad/"),
    "dequantize4": ("dequantize4_words", "dequantize4/"),
    "adamw": ("update_packs", "adamw/"),
    "adamw_8bit": ("update_coded", "adamw_8bit/"),
    "segment_squares": ("segment_square_sums", "segment_squares/"),
    "sum_squares": ("sum_parts", "sum_squares/")}
PREDICTED = ("attention_grad", "attention", "normed_rope_grad", "glu_grad", "cross_entropy")
EXPORT_SECONDS = 10
LEAST_SECONDS = 5  # for a profiler to start on a loaded machine


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prebuilt", type=Path, required=True, help="programs, as in scripts/gpu_suite.sh")
    parser.add_argument("--results", type=Path, help="results.json from scripts/gpu_suite.sh")
    parser.add_argument("--most", type=int, default=5, help="maximum number of kernels")
    parser.add_argument("--seconds", type=float, default=400, help="time limit for all kernels together")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    return parser.parse_args()


def hottest(results, most):
    """[(launch, share of a step or None)], and the kernels that are left out because no case runs them."""
    shares, left_out = {}, []
    attributions = results.get("attributions", [])
    for document in attributions:
        for kernel in document.get("kernels", []):
            if "gemm" not in kernel["group"].lower():
                shares[kernel["name"]] = shares.get(kernel["name"], 0) + kernel["ms"] / document["step_ms"] / len(attributions)
    chosen = []
    for name in sorted(shares, key=shares.get, reverse=True):
        if len(chosen) == most:
            break
        launch = name if name in KERNELS else next((k for k, (function, _) in KERNELS.items()
                                                    if function != "for_elements" and re.match(function, name)), None)
        if launch:
            chosen.append((launch, shares[name]))
        else:
            left_out.append(f"{name}, {shares[name]:.1%} of a step: no case of qtrain bench runs it alone")
    return chosen or [(name, None) for name in PREDICTED[:most]], left_out


def ncu():
    return shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin") or "ncu"


def commands(args, out, launch):
    """The command that profiles a kernel, and those that export the report as text and as a table, by file name."""
    function, case = KERNELS[launch]
    report = out / f"{launch}.ncu-rep"
    sections = [word for section in SECTIONS for word in ("--section", section)]
    profile = [ncu(), "--config-file", "off", "--force-overwrite", "--export", str(report), "--clock-control", "none", *sections,
               "--kernel-name", f"regex:^{function}", "--filter-mode", "per-launch-config", "--launch-skip", "3",
               "--launch-count", "1", str(args.prebuilt / "bin/qtrain"), "bench", case, "--device", "cuda"]
    details = [ncu(), "--import", str(report), "--page", "details"]
    source = [ncu(), "--import", str(report), "--page", "source", "--print-source", "sass", "--csv"]
    return profile, {f"{launch}.txt": details, f"{launch}.source.csv": source}


def environment():
    """The environment, with PyTorch's cuBLASLt if the toolkit has none, as in scripts/gpu_suite.sh."""
    values, spec = dict(os.environ), importlib.util.find_spec("torch")
    if spec and spec.origin and not glob.glob("/usr/local/cuda/lib64/libcublasLt.so.13"):
        packages = Path(spec.origin).parents[1]
        found = sorted({str(p.parent) for p in packages.glob("nvidia/*/lib/libcublasLt.so.13")})
        values["LD_LIBRARY_PATH"] = ":".join(found + [v for v in [values.get("LD_LIBRARY_PATH")] if v])
    return values


def run(command, output, seconds):
    """Runs a command; returns why it failed, or an empty text."""
    with open(output, "w", encoding="utf-8") as out:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       env=environment(), start_new_session=True)
        except OSError as problem:
            return str(problem)
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the profiler and what it profiles
            process.wait()
            return f"stopped after {seconds:.0f} s"
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("==ERROR==") or "No kernels were profiled" in line]
    if status != 0 or errors:
        return (errors or [f"ended with {status}"])[0].removeprefix("==ERROR==").strip()
    return ""


def profiled(args, out, launch, seconds):
    """Profiles a kernel; returns why that failed, or an empty text."""
    profile, pages = commands(args, out, launch)
    log = out / f"{launch}.log"
    problem = run(profile, log, max(seconds - EXPORT_SECONDS, LEAST_SECONDS))
    for name, command in {} if problem else pages.items():
        problem = problem or run(command, out / name, EXPORT_SECONDS)
    return problem


def main():
    args = parse()
    results = json.loads(args.results.read_text(encoding="utf-8")) if args.results else {}
    chosen, left_out = hottest(results, args.most)
    out = Path(os.environ.get("OUT", "build/gpu_suite")) / "profile"
    for line in left_out:
        print(f"left out: {line}")
    if args.dry_run:
        for launch, _ in chosen:
            profile, pages = commands(args, out, launch)
            print(shlex.join(profile))
            for name, command in pages.items():
                print(f"{shlex.join(command)} > {shlex.quote(str(out / name))}")
        return
    out.mkdir(parents=True, exist_ok=True)
    end, document = time.monotonic() + args.seconds, []
    for i, (launch, share) in enumerate(chosen):
        begin = time.monotonic()
        problem = profiled(args, out, launch, (end - begin) / (len(chosen) - i))
        document.append(dict(kernel=launch, share_of_step=share, state=problem or "profiled",
                             seconds=round(time.monotonic() - begin, 1)))
        part = "predicted" if share is None else f"{share:.1%} of a step"
        print(f"{launch:<20} {part:>16}  {document[-1]['state']}, {document[-1]['seconds']} s", flush=True)
        (out / "profile.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(d["state"] != "profiled" for d in document))


if __name__ == "__main__":
    main()
