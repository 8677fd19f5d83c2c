#!/usr/bin/env python3
"""The figures of docs/scaling.md are what `qtrain estimate` says (bench/scaling_plot.py).

    python3 tests/scripts/scaling_plot_test.py"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [ROOT / f"build/{preset}/bin/qtrain" for preset in ("emulated", "cpu", "release")]
BUILT = sorted((p for p in PROGRAMS if p.exists()), key=lambda p: p.stat().st_mtime)


@unittest.skipUnless(BUILT, "qtrain is not built")
class ScalingPlot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder) / "scaling.svg"
            command = [sys.executable, ROOT / "bench/scaling_plot.py", "--qtrain", BUILT[-1], "--output", drawn]
            cls.said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            cls.drawn = drawn.read_text()

    def test_is_the_one_of_the_documentation(self):
        self.assertEqual(self.drawn, (ROOT / "docs/scaling.svg").read_text(), "draw it again: bench/scaling_plot.py")

    def test_has_the_figures_of_the_table(self):
        columns = [dict(re.findall(r"(\d+) (\d+)(?:,|$)", line.split(": ")[1])) for line in self.said.splitlines()]
        table = (ROOT / "docs/scaling.md").read_text().split("| GPUs |")[1].split("\n\n")[0]
        rows = re.findall(r"^\| ([\d,]+) \|(.*)\|.*\|$", table, re.MULTILINE)
        rows = [(gpus.replace(",", ""), [cell.strip() for cell in cells.split("|")]) for gpus, cells in rows]
        self.assertEqual([gpus for gpus, _ in rows], ["8", "16", "128", "1024"])
        for gpus, cells in rows:
            self.assertEqual(cells, [f"{int(column[gpus]):,}" for column in columns], f"{gpus} GPUs")


if __name__ == "__main__":
    unittest.main()
