#!/usr/bin/env python3
"""Compares the instructions of hot paths, counted by callgrind, with the numbers in bench/baselines.

    cmake --preset cpu -DQTRAIN_UNITY=ON && cmake --build --preset cpu --target bench_cases
    bench/compare_baselines.py                          # fails if a case takes over 3 % more instructions
    bench/compare_baselines.py --write                  # writes all numbers again
    bench/compare_baselines.py --write 'adamw/262144'   # adds or updates this case

It builds nothing. Each case runs twice on one thread with AVX2, in its own process; the second run is counted, from
entry to return of the function `qtrain_counted` (bench/main.cpp). Counts are reproducible with the same compiler and
flags, unlike times on a shared machine. Exit code 1: a case grew or failed. 3: nothing was compared, because valgrind is
missing or the program was built by another compiler or with other flags than the baselines.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GREW, NOT_COMPARED = 1, 3


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=ROOT / "build/cpu/bin/bench_cases", type=pathlib.Path, help="the program")
    parser.add_argument("--baselines", default=ROOT / "bench/baselines/avx2.json", type=pathlib.Path)
    parser.add_argument("--tolerance", default=3.0, type=float, metavar="PERCENT", help="growth that passes (3)")
    parser.add_argument("--write", nargs="*", metavar="CASE", help="write the counts of these cases, or of all cases")
    parser.add_argument("--valgrind", default="valgrind", help="the program")
    return parser.parse_args(words)


def counted(args, name):
    """Returns the instructions of one case, or None after printing the reason to stderr."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "callgrind.out"
        command = [args.valgrind, "--tool=callgrind", "--toggle-collect=qtrain_counted", f"--callgrind-out-file={out}",
                   str(args.bench), "--run", name]
        # The C library chooses its string functions by CPU features; masking these two makes all CPUs use the same ones.
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TMPDIR": tempfile.gettempdir(),
                       "QTRAIN_CPU_ISA": "avx2", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-ERMS,-FSRM"}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        totals = re.search(r"^(?:totals|summary): *(\d+)", out.read_text(), re.M) if out.exists() else None
        if run.returncode != 0 or not totals or int(totals[1]) == 0:
            print(f"{name}: ended with {run.returncode}\n{run.stderr}", file=sys.stderr)
            return None
        return int(totals[1])


def compare(args, baselines):
    failed, smaller = [], []
    for name, before in baselines["cases"].items():
        now = counted(args, name)
        growth = None if now is None else 100.0 * (now - before) / before
        if growth is None or growth > args.tolerance:
            failed.append(name)
        elif growth < -args.tolerance:
            smaller.append(name)
        if growth is not None:
            mark = "  GREW" if growth > args.tolerance else ""
            print(f"{name:<40} {before:>14} -> {now:>14}  {growth:+7.2f} %{mark}", flush=True)
    if smaller:
        print(f"over {args.tolerance:g} % fewer instructions: update the baselines with --write {' '.join(smaller)}")
    if failed:
        print(f"over {args.tolerance:g} % more instructions, or not counted: {', '.join(failed)}")
    return GREW if failed else 0


def write(args, baselines, built):
    cases = dict(baselines["cases"]) if baselines else {}
    for name in args.write or list(cases):
        count = counted(args, name)
        if count is None:
            return GREW
        print(f"{name:<40} {count:>14}", flush=True)
        cases[name] = count
    document = {"unit": "instructions", "isa": "avx2", **built, "cases": cases}
    args.baselines.parent.mkdir(parents=True, exist_ok=True)
    args.baselines.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def main(words=None):
    args = parse(words)
    if not shutil.which(args.valgrind):
        print("valgrind is not installed: nothing was compared")
        return NOT_COMPARED
    listed = json.loads(subprocess.run([str(args.bench), "--list"], capture_output=True, text=True, check=True).stdout)
    built = {key: listed[key] for key in ("compiler", "flags")}
    baselines = json.loads(args.baselines.read_text()) if args.baselines.exists() else None
    of_same_build = baselines is not None and all(baselines[key] == value for key, value in built.items())
    if args.write is not None:
        if baselines and args.write and not of_same_build:
            print("the other baselines were made by a different build: update all of them with --write")
            return NOT_COMPARED
        return write(args, baselines, built)
    if not of_same_build:
        theirs = {key: baselines[key] for key in built} if baselines else "missing"
        print(f"nothing was compared: the baselines were made with {theirs}, the program with {built}")
        return NOT_COMPARED
    return compare(args, baselines)


if __name__ == "__main__":
    sys.exit(main())
