#!/usr/bin/env python3
"""Puts the results of scripts/gpu_suite.sh together: one JSON document, and a table of figure, value, goal, ratio.

Ends with 1 unless every part passed or was skipped. A figure whose result was wrong is shown, but its speed does not count."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--parts", "--output", "--command", "--commit"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    return parser.parse_args()


def read(file):
    """The document, or None where a part left none or half of one."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def machine():
    found = dict(gpu=None, driver=None, nvcc=None)
    if shutil.which("nvidia-smi"):
        text = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True).stdout
        words = [w.strip() for w in text.splitlines()[0].split(",")] if text else []
        if len(words) == 2:
            found.update(gpu=words[0], driver=words[1])
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc:
        found["nvcc"] = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.splitlines()[-1]
    return found


def parts_of(folder):
    parts = []
    for line in (folder / "parts.tsv").read_text().splitlines():
        name, state, seconds = line.split("\t")
        part = dict(name=name, state=state, seconds=int(seconds))
        report = read(folder / f"{name}.json")
        if report and "testsuites" in report:
            cases = [t for s in report["testsuites"] for t in s["testsuite"]]
            part.update(tests=len(cases), failed=[f"{t['classname']}.{t['name']}" for t in cases if t.get("failures")],
                        skipped=sum(t["result"] == "SKIPPED" for t in cases))
        parts.append(part)
    return parts


def main():
    args = parse()
    folder = Path(args.parts)
    parts = parts_of(folder)
    measured = {file.stem: read(file) for file in sorted(folder.glob("*.json"))
                if file.stem == "kernels" or file.stem.startswith("step_")}
    figures = [f for document in measured.values() if document for f in document["figures"]]
    for figure in figures:
        figure["ratio"] = figure["value"] / figure["goal"]
    problems = [p for document in measured.values() if document for p in document["problems"]]
    result = dict(commit=args.commit, command=args.command, seconds=args.seconds, **machine(), parts=parts,
                  problems=problems, figures=figures, details=measured, bench=read(folder / "bench.json"))
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")

    print(f"\n{'figure':<64} {'value':>10} {'goal':>10} {'ratio':>7}")
    for f in figures:
        print(f"{f['figure']:<64} {f['value']:>10.5g} {f['goal']:>10.5g} {f['ratio']:>7.2f}"
              f"{'' if f['right'] else '  WRONG RESULT'}")
    for part in parts:
        tests = f", {part['tests']} tests, {len(part['failed'])} failed" if "tests" in part else ""
        print(f"{part['name']:<20} {part['state']}, {part['seconds']} s{tests}")
        for name in part.get("failed", [])[:20]:
            print(f"    {name}")
    for problem in problems:
        print(f"problem: {problem}")
    print(f"{args.seconds} s in all; {args.output}")
    sys.exit(not all(p["state"].startswith(("passed", "skipped")) for p in parts))


if __name__ == "__main__":
    main()
