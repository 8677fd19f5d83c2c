"""Sections of this repository's documentation (Apache-2.0) as rows of text; every tenth is held out.
Usage: data.py --output DIR [--seed N]"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
from rows import Draw, write

PAGES = ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/commands.md", "docs/development.md",
         "docs/distributed.md", "docs/features.md", "docs/files.md", "docs/gpu.md", "docs/kernels.md", "docs/memory.md", "docs/optimizers.md", "docs/semantics.md"]
SHORTEST, LONGEST = 200, 1500  # characters; shorter sections are little more than a heading, and longer ones are cut


def sections(text):
    """Splits a page at its headings; a # inside a fenced block is not a heading."""
    fenced, parts = False, [[]]
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("#"):
            parts.append([])
        parts[-1].append(line)
    return ["".join(part)[:LONGEST] for part in parts if len("".join(part)) >= SHORTEST]


def rows(seed):
    found = [{"text": part} for page in PAGES for part in sections((ROOT / page).read_text(encoding="utf-8"))]
    found = Draw(seed).shuffled(found)
    return [row for i, row in enumerate(found) if i % 10], found[::10]


if __name__ == "__main__":
    write(rows)
