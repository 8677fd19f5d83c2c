#!/usr/bin/env python3
"""The steps of scripts/package/newcomer.sh run every block of docs/guides/wheel.md, each where its checks expect it.

    python3 tests/scripts/newcomer_test.py"""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = (ROOT / "scripts/package/newcomer_steps.sh").read_text(encoding="utf-8")


def blocks_of(page):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "scripts/package/page_blocks.sh", ROOT / page, folder], check=True)
        return {file.name: file.read_text(encoding="utf-8") for file in Path(folder).iterdir()}


class Newcomer(unittest.TestCase):
    def test_steps_run_every_block_of_the_wheel_guide_in_order(self):
        run = re.findall(r"^(?:\. |\$\(head -n 1 )blocks/(wheel\.\d+)", STEPS, re.M)
        self.assertEqual(run, sorted(blocks_of("docs/guides/wheel.md")))
        self.assertEqual(len(run), 6)

    def test_blocks_are_what_the_steps_take_them_for(self):
        blocks = blocks_of("docs/guides/wheel.md")
        for name, start in (("wheel.1", "python3 -m venv"), ("wheel.2", "pip download"), ("wheel.3", "cat > shop.csv"),
                            ("wheel.4", "qtrain chat"), ("wheel.5", "qtrain serve"), ("wheel.6", "qtrain merge")):
            self.assertTrue(blocks[name].startswith(start), f"{name}: {blocks[name]}")

    def test_one_block_of_the_quickstart_trains_its_example(self):
        blocks = blocks_of("docs/guides/quickstart.md")
        self.assertEqual(sum("\nqtrain examples/cypher/config.json\n" in text for text in blocks.values()), 1)


if __name__ == "__main__":
    unittest.main()
