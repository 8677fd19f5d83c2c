#!/usr/bin/env python3
"""Reads the recipes that other tools ship, and writes a page on which of them the program reads and which it refuses, and
why (docs/recipes.md).

    git clone https://github.com/huggingface/alignment-handbook
    git clone https://github.com/axolotl-ai-cloud/axolotl
    git clone https://github.com/hiyouga/LLaMA-Factory
    scripts/recipe_table.py --program build/release/bin/qtrain alignment-handbook axolotl LLaMA-Factory > docs/recipes.md

The folders are working copies of these repositories. A recipe counts as read if `qtrain config` accepts it; models and data
are not needed. Needs Python 3.11 and git, but no network.
"""

import argparse
import os
import re
import subprocess
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Where a tool keeps its recipes, and what is among them without being a recipe for training.
TOOLS = {
    "alignment-handbook": ("recipes", ("accelerate_configs",)),
    "axolotl": ("examples", ("cloud",)),
    "LLaMA-Factory": ("examples", ("accelerate", "inference", "merge_lora", "deepspeed", "train_lora/qwen3_preprocess",
                                   "multi_tokens/tokens_cfg", "nlg_eval", "quantization", "export_lora",
                                   "requirements")),
}
# Training that is not supervised fine-tuning: by the reasons that the program gives, or by the recipe's path.
OTHER_TRAINING = re.compile(r"preference training|reinforcement learning|preferences|\bEBFT\b|reward model|/(dpo|orpo|kto|rm|grpo)/")
PROBLEM = re.compile(r"^(?:error: |  )\S+?:(?:\d+:)? (.+)$")
KEY = re.compile(r'^(?:unknown key )?"([^"]+)"')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help=f"named like {', '.join(TOOLS)}")
    args = parser.parse_args()
    for folder in args.folders:
        if folder.resolve().name not in TOOLS:
            parser.error(f"{folder}: a folder is named like its repository: {', '.join(TOOLS)}")
    return args


def recipes(folder):
    below, others = TOOLS[folder.name]
    files = sorted(p.relative_to(folder) for p in (folder / below).rglob("*.y*ml"))
    return [p for p in files if not any(part in str(p.relative_to(below)) for part in others)]


def problems(program, folder, recipe):
    """The reasons for which a recipe is refused; none if it is read."""
    environment = dict(os.environ, HF_HUB_OFFLINE="1")
    done = subprocess.run([program, "config", recipe], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return []
    lines = [m[1] for line in done.stderr.splitlines() if (m := PROBLEM.match(line))]
    return [line for line in lines if not re.fullmatch(r"\d+ problems", line)] or [done.stderr.strip().splitlines()[-1]]


def short(reason):
    """A reason without the value in question, so that equal reasons are counted together."""
    unknown = re.match(r'unknown key "([^"]+)"', reason)
    if unknown:
        return f"unknown key `{unknown[1]}`"
    key = KEY.match(reason)
    why = re.split(r"cannot be honored: ", reason, maxsplit=1)
    if key and len(why) == 2:
        return f"`{key[1]}`: {why[1]}"
    return reason if len(reason) <= 160 else reason[:157] + "..."


def commit_of(folder):
    return subprocess.run(["git", "-C", folder, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True,
                          check=True).stdout.strip()


def escaped(text):
    return text.replace("|", "\\|").replace("<", "\\<")


def section(program, folder):
    files = recipes(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(files, pool.map(lambda f: problems(program, folder, f), files)))
    other = {f for f, reasons in found.items() if OTHER_TRAINING.search("\n".join([f"/{f}", *reasons]))}
    read = [f for f, reasons in found.items() if not reasons and f not in other]
    refused = [f for f, reasons in found.items() if reasons and f not in other]
    print(f"\n## {folder.name}\n\nAt commit {commit_of(folder)}: {len(files)} recipes, {len(other)} of them not for "
          f"supervised fine-tuning. Of the other {len(read) + len(refused)}, {len(read)} are read.\n")
    names = ", ".join(f"`{f.relative_to(TOOLS[folder.name][0]).with_suffix('')}`" for f in read)
    print(textwrap.fill(f"Read: {names}.", 120, break_long_words=False, break_on_hyphens=False))
    if not refused:
        return
    print("\n| recipes | why they are refused |\n|---|---|")
    counts = Counter(reason for f in refused for reason in {short(r) for r in found[f]})
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        print(f"| {count} | {escaped(reason)} |")

def main():
    args = arguments()
    print("# Recipes of other tools\n\nWhich of the configs that other tools ship `qtrain config` reads as they are, and why it "
          "refuses the others. A recipe may\nhave several reasons, and reading it says nothing about its model, which may be of a "
          "family that is not available.\n`scripts/recipe_table.py` writes this page.")
    for folder in args.folders:
        section(args.program.resolve(), folder.resolve())


if __name__ == "__main__":
    main()
