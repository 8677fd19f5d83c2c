#!/usr/bin/env python3
"""Speed and memory of qtrain and TRL on this machine's processor, for the README: writes bench/results/cpu_peers.json.

    bench/peers/cpu_peers.py --qtrain build/release/bin/qtrain --model DIR --data rows.jsonl --python peers/bin/python
    bench/peers/bars.py      # then puts the table and the picture into README.md

Four cases: LoRA (r=16) and full fine-tuning, each in float32 with both programs restricted to AVX2, and with everything
the processor has in the fastest dtype. TRL runs in float32 and in bfloat16, and the faster one counts; a dtype that is far
behind in the first round is not run again. The programs take turns: one round runs every case once with each. Other work on
the machine falsifies the results, so the script refuses to start if the load average is above 0.7.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import compare

ROOT = Path(__file__).resolve().parents[2]
MOST_LOAD = 0.7
FAR_BEHIND = 0.8  # fraction of the speed in TRL's other dtype
AVX2 = {"QTRAIN_CPU_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
# Trained weights are float32 in both; the frozen weights of LoRA are in `dtype`.
CASES = (
    dict(name="LoRA, float32, AVX2", full=False, environment=AVX2, set=[]),
    dict(name="LoRA, fastest dtype", full=False, environment={}, set=["bf16=true", "dtype=bfloat16"]),
    dict(name="full fine-tuning, float32, AVX2", full=True, environment=AVX2, set=[]),
    dict(name="full fine-tuning, fastest dtype", full=True, environment={}, set=["bf16=true"]))
FIGURES = ("tokens_per_second_after_first", "peak_rss_mb", "total_seconds")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qtrain", required=True, help="a release build")
    parser.add_argument("--model", required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--data", required=True, help="JSONL with `messages`")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has TRL (requirements.txt)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--busy", action="store_true", help="run although the machine has other work; recorded in the file")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/cpu_peers.json")
    return parser.parse_args()


@contextlib.contextmanager
def environment(values):
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(case, peer, args):
    """One run: `peer` is qtrain, or TRL with the dtype that its model has."""
    dtype = peer.partition(" ")[2] or "float32"
    values = argparse.Namespace(qtrain=args.qtrain, model=args.model, data=args.data, python=args.python, steps=args.steps,
                                batch=8, threads=os.cpu_count(), full=case["full"], packing=False, set=case["set"],
                                dtype=dtype)
    with environment(case["environment"]):
        result = compare.run_qtrain(values) if peer == "qtrain" else compare.run_trl(values)
    print(f"{case['name']:32} {peer:13} {result[FIGURES[0]]:8.1f} tokens/s {result[FIGURES[1]]:7.0f} MB", file=sys.stderr)
    return result


def is_far_behind(runs, name, peer):
    other = {"trl float32": "trl bfloat16", "trl bfloat16": "trl float32"}.get(peer)
    return other and runs[name, peer][0][FIGURES[0]] < FAR_BEHIND * runs[name, other][0][FIGURES[0]]


def measured(args):
    """Returns a list of results for each case and peer. Every other round runs them in reverse order."""
    order = [(case["name"], peer) for case in CASES for peer in ("trl float32", "trl bfloat16", "qtrain")]
    cases, runs = {case["name"]: case for case in CASES}, {key: [] for key in order}
    for number in range(args.rounds):
        for name, peer in order if number % 2 == 0 else reversed(order):
            if number == 0 or not is_far_behind(runs, name, peer):
                runs[name, peer].append(run(cases[name], peer, args))
    return runs


def case_of(case, runs):
    """A case as written to the file: every run, medians, and which of TRL's dtypes is faster."""
    def summary(peer):
        results = runs[case["name"], peer]
        return dict(median={key: compare.middle(results, key) for key in FIGURES},
                    runs=[{key: r[key] for key in (*FIGURES, "tokens", "losses")} for r in results])

    trl = {dtype: summary(f"trl {dtype}") for dtype in ("float32", "bfloat16")}
    faster = max(trl, key=lambda dtype: trl[dtype]["median"][FIGURES[0]])
    return case | dict(qtrain=summary("qtrain"), trl=trl, faster_trl_dtype=faster)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        values = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    flags = [f for f in values.get("flags", "").split() if f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")]
    return dict(name=values.get("model name", platform.machine()), family=values.get("cpu family"),
                model=values.get("model"), instructions=flags)


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=8", "HEAD") or "unknown") + ("-changed" if changed else "")


def command(args):
    """The command line without this machine's folders."""
    names = [f"--{key} {Path(getattr(args, key)).name}" for key in ("qtrain", "model", "data", "python")]
    return " ".join(["bench/peers/cpu_peers.py", *names, f"--rounds {args.rounds} --steps {args.steps}"] + ["--busy"] * args.busy)


def versions(runs):
    return next(results[0]["versions"] for (_, peer), results in runs.items() if peer != "qtrain")


def main():
    args, load = parse(), os.getloadavg()[0]
    if load > MOST_LOAD and not args.busy:
        sys.exit(f"The load average is {load:.2f}, above {MOST_LOAD}: wait until the machine is idle, or add --busy.")
    said = subprocess.run([args.qtrain, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    runs = measured(args)
    document = dict(processor=processor(), threads=os.cpu_count(), memory_gb=round(
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1), system=platform.platform(terse=True),
        load_before=round(load, 2), commit=commit(), qtrain=said, versions=versions(runs), command=command(args),
        cases=[case_of(case, runs) for case in CASES])
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
