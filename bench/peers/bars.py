#!/usr/bin/env python3
"""Puts the results of cpu_peers.py into the README: the claim, the table, and the picture docs/images/cpu_peers.svg.

    bench/peers/bars.py

Reads bench/results/cpu_peers.json and writes only what stands between the comments `<!-- cpu_peers... -->` of README.md.
Standard library only.
"""

import argparse
import html
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS, README, PICTURE = (ROOT / p for p in ("bench/results/cpu_peers.json", "README.md", "docs/images/cpu_peers.svg"))
CLAIM = "LoRA, fastest dtype"  # the case that the README begins with
SPEED, MEMORY = "tokens_per_second_after_first", "peak_rss_mb"

# The picture has its own background color, so that it is readable on light pages and, if the browser prefers dark, on
# dark ones.
STYLE = """
  text { font: 13px sans-serif; fill: #24292f } .title { font-weight: bold }
  .card { fill: #ffffff; stroke: #d0d7de } .ours { fill: #0969da } .theirs { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .card { fill: #161b22; stroke: #30363d } .ours { fill: #58a6ff } .theirs { fill: #6e7681 }
  }"""
WIDTH, TOP, CASE, BAR, LEFT, BAR_WIDTH = 820, 64, 58, 18, (230, 540), 190


def figures(case):
    """{speed, memory} of a case, each as (qtrain, TRL): memory in GB, TRL in its faster dtype."""
    ours, theirs = case["qtrain"]["median"], case["trl"][case["faster_trl_dtype"]]["median"]
    return dict(speed=(ours[SPEED], theirs[SPEED]), memory=(ours[MEMORY] / 1000, theirs[MEMORY] / 1000))


def machine(results):
    name = re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b|@.*", "", results["processor"]["name"])
    wide = " with AVX-512" if "avx512f" in results["processor"]["instructions"] else ""
    return f"{results['threads']} cores of an {' '.join(name.split())}{wide}"


def claim(results):
    case = next(c for c in results["cases"] if c["name"] == CLAIM)
    (fast, slow), (small, large) = (figures(case)[key] for key in ("speed", "memory"))
    text = (f"**{fast / slow:.1f} times the speed of TRL on a CPU**: {fast:.0f} against {slow:.0f} tokens/s, in {small:.1f} "
            f"against {large:.1f} GB of memory (LoRA on SmolLM2-135M, each in its fastest dtype, {machine(results)}, "
            f"commit {results['commit']}).")
    return "\n".join(textwrap.wrap(text, 80, break_long_words=False, break_on_hyphens=False))


def row(case):
    (fast, slow), (small, large) = (figures(case)[key] for key in ("speed", "memory"))
    return (f"| {case['name']} | {fast:.0f} tokens/s | {slow:.0f} tokens/s ({case['faster_trl_dtype']}) | {fast / slow:.1f} | "
            f"{small:.1f} GB | {large:.1f} GB |")


def table(results):
    packages = ", ".join(f"{name} {results['versions'][name]}" for name in ("torch", "transformers", "trl", "peft"))
    rounds = len(results["cases"][0]["qtrain"]["runs"])
    busy = f" The machine had other work (load {results['load_before']})." if results["load_before"] > 0.7 else ""
    note = (f"SmolLM2-135M, 8 chat rows per step, medians of {rounds} rounds, alternating, on {machine(results)}. "
            f"AVX2: both programs are restricted to it. TRL's figures are those of its faster dtype. {packages}; commit "
            f"{results['commit']}; the command and every run are in `bench/results/cpu_peers.json`.{busy}")
    return "\n".join([
        "![Bars of the table: tokens per second and peak memory](docs/images/cpu_peers.svg)", "",
        "| | qtrain | TRL | ratio | memory: qtrain | memory: TRL |", "|---|---|---|---|---|---|", *map(row, results["cases"]),
        "", *textwrap.wrap(note, 120, break_long_words=False, break_on_hyphens=False)])


def text(x, y, words, more=""):
    return f'<text x="{x:g}" y="{y:g}" {more}>{html.escape(words)}</text>'


def bars(case, key, place):
    """Both programs' bars for one figure of a case; `place`: left edge, top, and the value of a bar of full width."""
    left, top, most = place
    unit = "{:.0f}" if key == "speed" else "{:.1f} GB"
    for index, (kind, value) in enumerate(zip(("ours", "theirs"), figures(case)[key])):
        y = top + index * (BAR + 2)
        yield f'<rect class="{kind}" x="{left}" y="{y}" width="{BAR_WIDTH * value / most:.1f}" height="{BAR}" rx="2"/>'
        yield text(left + BAR_WIDTH * value / most + 6, y + 13.5, unit.format(value))


def picture(results):
    height = TOP + CASE * len(results["cases"]) + 10
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    yield f"<title>qtrain and TRL on {html.escape(machine(results))}</title>\n<style>{STYLE}\n</style>"
    yield f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    for x, kind, name in ((16, "ours", "qtrain"), (90, "theirs", "TRL")):
        yield f'<rect class="{kind}" x="{x}" y="20" width="12" height="12" rx="2"/>'
        yield text(x + 18, 31, name)
    for left, key, title in zip(LEFT, ("speed", "memory"), ("tokens/s (more is better)", "peak memory (less is better)")):
        yield text(left, 31, title, 'class="title"')
        most = max(max(figures(case)[key]) for case in results["cases"])
        for index, case in enumerate(results["cases"]):
            yield from bars(case, key, (left, TOP + CASE * index, most))
    for index, case in enumerate(results["cases"]):
        yield text(16, TOP + CASE * index + 24, case["name"])
    yield "</svg>"


def put(readme, name, words):
    """Replaces the text between the two comments with this name in the README."""
    found, count = re.subn(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: m[1] + words + "\n" + m[2], readme,
                           flags=re.S)
    if count != 1:
        sys.exit(f"README.md needs the comments <!-- {name} --> and <!-- /{name} --> once")
    return found


def readme_with(readme, results):
    return put(put(readme, "cpu_peers:claim", claim(results)), "cpu_peers", table(results))


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not RESULTS.exists():
        sys.exit(f"{RESULTS.relative_to(ROOT)} does not exist: run bench/peers/cpu_peers.py")
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    README.write_text(readme_with(README.read_text(encoding="utf-8"), results), encoding="utf-8")
    PICTURE.write_text("\n".join(picture(results)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
