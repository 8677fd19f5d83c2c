"""What the data.py of the examples share: draws that are the same on every machine, and files of JSON rows."""

import argparse
import json
from pathlib import Path


class Draw:
    """A linear congruential generator (Knuth's MMIX constants): the module `random` does not promise the same order in
    every version."""

    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % count

    def one_of(self, items):
        return items[self.below(len(items))]

    def shuffled(self, items):
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items


def turn(role, content):
    return {"role": role, "content": content}


def write(rows_of):
    """Writes train.jsonl and eval.jsonl into the folder given by --output; rows_of(seed) returns the rows of both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=2024)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("train", "eval"), rows_of(options.seed)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (options.output / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        print(f"{len(rows)} rows in {options.output / name}.jsonl")
