#!/usr/bin/env python3
"""docs/hardware.md is what `qtrain estimate --cards` says (bench/hardware_page.py).

    python3 tests/scripts/hardware_page_test.py"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [ROOT / f"build/{preset}/bin/qtrain" for preset in ("emulated", "cpu", "release")]
BUILT = sorted((p for p in PROGRAMS if p.exists()), key=lambda p: p.stat().st_mtime)


@unittest.skipUnless(BUILT, "qtrain is not built")
class HardwarePage(unittest.TestCase):
    def test_is_the_one_of_the_documentation(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "hardware.md"
            subprocess.run([sys.executable, ROOT / "bench/hardware_page.py", "--qtrain", BUILT[-1], "--output", page],
                           check=True)
            self.assertEqual(page.read_text(), (ROOT / "docs/hardware.md").read_text(),
                             "write it again: bench/hardware_page.py")


if __name__ == "__main__":
    unittest.main()
