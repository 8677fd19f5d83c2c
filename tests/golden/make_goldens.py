#!/usr/bin/env python3
"""Writes tests/golden/data with the reference libraries (requirements.txt), or checks that it would be the same.

    python make_goldens.py            # writes data/ again
    python make_goldens.py --check    # makes it in a temporary folder and compares
    python make_goldens.py --only cases|generation|schedules|curves|narrow   # a part
    python make_goldens.py --match granite   # cases, answers and curves whose name has it
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import torch
from transformers.utils import logging

import golden_check
import golden_curves
import golden_models
import golden_narrow
import golden_reference
import golden_schedules

DATA = Path(__file__).parent / "data"
PARTS = ("cases", "generation", "schedules", "curves", "narrow")  # in this order


def make_cases(root, match=""):
    for case in golden_models.CASES:
        if match not in case.name:
            continue
        shutil.rmtree(root / case.name, ignore_errors=True)
        golden_models.write_model(case, root)
        golden_reference.write_expected(case, root)
        print("case", case.name, flush=True)


def make_generation(root, match=""):
    for name in golden_reference.GENERATION:
        if match not in name:
            continue
        golden_reference.write_generation(name, root)
        print("generation", name, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--match", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    makers = dict(cases=make_cases, generation=make_generation, schedules=golden_schedules.make,
                  curves=golden_curves.make, narrow=golden_narrow.make)
    parts = [args.only] if args.only else PARTS
    if args.match:
        for part in ("cases", "generation", "curves"):
            makers[part](DATA, args.match)
        return 0
    if not args.check:
        for part in parts:
            makers[part](DATA)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        for part in PARTS:
            makers[part](Path(temporary))
        return golden_check.report(Path(temporary), DATA)


if __name__ == "__main__":
    raise SystemExit(main())
