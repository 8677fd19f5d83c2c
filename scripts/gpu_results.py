#!/usr/bin/env python3
"""Puts the results of scripts/gpu_suite.sh together: one JSON document, and a table of figure, value, goal, ratio.

Exits with 0 if every part ran and passed, or was skipped because a tool is missing. A missing peer and a missed goal are
not failures. A part that was stopped at its time limit counts as run if it left figures and all their results are correct;
a sanitizer, if it had found nothing so far; tests, only if all of them ran. A figure with a wrong result is shown, but its
speed does not count."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path


ATTRIBUTION = "attribution "  # followed by a case


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--parts", "--output", "--command", "--commit"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    return parser.parse_args()


def read(file):
    """Reads a JSON file; None if the part did not write it, or only half of it."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def machine():
    found = dict(gpu=None, driver=None, nvcc=None)
    if shutil.which("nvidia-smi"):
        command = ["timeout", "20", "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        text = subprocess.run(command, capture_output=True, text=True).stdout
        words = [w.strip() for w in text.splitlines()[0].split(",")] if text.strip() else []
        if len(words) == 2:
            found.update(gpu=words[0], driver=words[1])
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc:
        lines = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout.splitlines()
        found["nvcc"] = lines[-1] if lines else None
    return found


def parts_of(folder):
    """The parts that ran, how they ended, and which tests failed (scripts/gpu_tests.py)."""
    parts = []
    for line in (folder / "parts.tsv").read_text().splitlines():
        name, state, seconds = line.split("\t")
        part = dict(name=name, state=state, seconds=int(seconds))
        report = read(folder / f"{name}.tests.json")
        if report:
            part.update(report)
        elif name.startswith(ATTRIBUTION) and state == "passed" and not attribution_of(folder, name):
            part["state"] = "failed: it wrote no groups of kernels"
        elif name.startswith("test_") and state == "passed":
            part["state"] = "failed: it wrote no report"
        parts.append(part)
    return parts


def found(file):
    """The complaints in a sanitizer's log."""
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    said = [line.strip("= ") for line in lines if line.startswith("=====")]
    return [s for s in said if s and not s.startswith("COMPUTE-SANITIZER") and "SUMMARY: 0 " not in s]


def attribution_of(folder, name):
    """The document that `qtrain bench step` wrote for the part; None if it is missing or incomplete."""
    document = read(folder / f"{name.replace(' ', '_')}.json")
    if not isinstance(document, dict) or not {"case", "step_ms", "tokens_per_second", "groups"} <= set(document):
        return None
    return document if document["groups"] and all({"group", "ms"} <= set(g) for g in document["groups"]) else None


def print_attribution(document):
    """Prints the time of a step by groups of kernels, next to the predictions."""
    print(f"\n{document['case']}: {document['step_ms']:.5g} ms per step, {document['tokens_per_second']:.5g} tokens/s")
    print(f"{'group':<64} {'ms':>10} {'predicted':>10} {'ratio':>7}")
    groups = document["groups"]
    known = [g for g in groups if g.get("predicted_ms") is not None]
    total = dict(group="total", ms=sum(g["ms"] for g in groups),
                 predicted_ms=sum(g["predicted_ms"] for g in known) if len(known) == len(groups) else None)
    for g in groups + [total]:
        print(f"{g['group']:<64} {g['ms']:>10.5g} {number(g.get('predicted_ms'), 10)} "
              f"{number(ratio(g['ms'], g.get('predicted_ms')), 7, '.2f')}")


def ratio(value, reference):
    return value / reference if reference else None


def number(value, width, form=".5g"):
    return f"{'-' if value is None else format(value, form):>{width}}"


def has_run(part, folder):
    if not part["state"].startswith("stopped"):
        return part["state"].startswith(("passed", "skipped"))
    name = part["name"]
    if name in ("memcheck", "racecheck"):
        return not found(folder / f"{name}.found")
    if name == "qtrain bench":
        return bool(read(folder / "bench.json"))
    if name.startswith(ATTRIBUTION):
        return bool(attribution_of(folder, name))
    document = read(folder / f"{name.replace(' ', '_')}.json") or dict(figures=[], problems=[])
    return bool(document["figures"]) and not document["problems"] and all(f["right"] for f in document["figures"])


def main():
    args = parse()
    folder = Path(args.parts)
    if not (folder / "parts.tsv").exists():
        sys.exit("no part ran")
    parts = parts_of(folder)
    for part in parts:
        part["ran"] = has_run(part, folder)
        if part["ran"] and part["state"].startswith("stopped"):
            part["state"] += ", with partial results"
    measured = {file.stem: read(file) for file in sorted(folder.glob("*.json"))
                if file.stem == "kernels" or file.stem.startswith("step_")}
    figures = [f for document in measured.values() if document for f in document["figures"]]
    for figure in figures:
        figure["ratio"] = ratio(figure["value"], figure["goal"])  # None for a figure without a goal for this GPU
    of_all = lambda key: [line for document in measured.values() if document for line in document[key]]
    problems, notes = of_all("problems"), of_all("notes")
    attributions = [d for d in (attribution_of(folder, p["name"]) for p in parts if p["name"].startswith(ATTRIBUTION)) if d]
    result = dict(commit=args.commit, command=args.command, seconds=args.seconds, **machine(), parts=parts,
                  problems=problems, notes=notes, figures=figures, details=measured, attributions=attributions,
                  bench=read(folder / "bench.json"))
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")

    print(f"\n{'figure':<64} {'value':>10} {'goal':>10} {'ratio':>7}")
    for f in figures:
        print(f"{f['figure']:<64} {f['value']:>10.5g} {number(f['goal'], 10)} {number(f['ratio'], 7, '.2f')}"
              f"{'' if f['right'] else '  WRONG RESULT'}")
    for document in attributions:
        print_attribution(document)
    print()
    for part in parts:
        tests = ""
        if "tests" in part:
            tests = f", {part['tests']} tests, {len(part['failed'])} failed, {len(part['not_run'])} did not run"
        print(f"{part['name']:<32} {part['state']}, {part['seconds']} s{tests}")
        for name in part.get("failed", [])[:20]:
            print(f"    {name}")
    for problem in problems:
        print(f"problem: {problem}")
    for note in notes:
        print(f"note: {note}")
    print(f"{args.seconds} s in all; {args.output}")
    sys.exit(not all(p["ran"] for p in parts))


if __name__ == "__main__":
    main()
