#!/usr/bin/env python3
"""Puts the results of scripts/gpu_suite.sh together: one JSON document, and a table of figure, value, goal, ratio.

Ends with 0 where every part ran and passed, or was skipped for a missing tool: a peer that is missing, and a goal that is
missed, are no failures. A part whose time was up has run where it left figures, all of them right, or, of a sanitizer,
where nothing was found so far; tests have run only if all of them have. A figure whose result was wrong is shown, but its
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
    """The document, or None where a part left none or half of one."""
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
    """What ran and how it ended; of tests also which failed (scripts/gpu_tests.py)."""
    parts = []
    for line in (folder / "parts.tsv").read_text().splitlines():
        name, state, seconds = line.split("\t")
        part = dict(name=name, state=state, seconds=int(seconds))
        report = read(folder / f"{name}.tests.json")
        if report:
            part.update(report)
        elif name.startswith(ATTRIBUTION) and state == "passed" and not attribution_of(folder, name):
            part["state"] = "failed: it left no groups of kernels"
        elif name.startswith("test_") and state == "passed":
            part["state"] = "failed: it left no report"
        parts.append(part)
    return parts


def found(file):
    """What a sanitizer complained of, in its own file."""
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    said = [line.strip("= ") for line in lines if line.startswith("=====")]
    return [s for s in said if s and not s.startswith("COMPUTE-SANITIZER") and "SUMMARY: 0 " not in s]


def attribution_of(folder, name):
    """What `qtrain bench step` wrote of the part; of a half of a document nothing."""
    document = read(folder / f"{name.replace(' ', '_')}.json")
    if not isinstance(document, dict) or not {"case", "step_ms", "tokens_per_second", "groups"} <= set(document):
        return None
    return document if document["groups"] and all({"group", "ms"} <= set(g) for g in document["groups"]) else None


def print_attribution(document):
    """A step by groups of kernels, beside what was predicted of them."""
    print(f"\n{document['case']}: {document['step_ms']:.5g} ms a step, {document['tokens_per_second']:.5g} tokens/s")
    print(f"{'group':<64} {'ms':>10} {'predicted':>10} {'ratio':>7}")
    groups = document["groups"]
    known = [g for g in groups if g.get("predicted_ms") is not None]
    total = dict(group="all of these", ms=sum(g["ms"] for g in groups),
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
            part["state"] += ", with what it had so far"
    measured = {file.stem: read(file) for file in sorted(folder.glob("*.json"))
                if file.stem == "kernels" or file.stem.startswith("step_")}
    figures = [f for document in measured.values() if document for f in document["figures"]]
    for figure in figures:
        figure["ratio"] = ratio(figure["value"], figure["goal"])  # of some nothing is asked, or not of this card
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
