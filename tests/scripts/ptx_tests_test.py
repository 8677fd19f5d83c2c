#!/usr/bin/env python3
"""Which kernels scripts/ptx_tests.py takes from a build instead of compiling them.

    python3 tests/scripts/ptx_tests_test.py"""

import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import ptx_tests  # noqa: E402


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.kept, self.out = self.root / "kept", self.root / "out"
        for name in ("kernels/cuda/glu.cu", "kernels/cuda/rope.cu", "core/types.h", "kept/glu.ptx", "kept/rope.ptx"):
            self.write(name, 1000 if name.endswith(".ptx") else 900)
        self.sources = [self.root / "kernels/cuda" / name for name in ("glu.cu", "rope.cu")]

    def write(self, name, time):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (time, time))

    def left(self):
        left = ptx_tests.take_kept(self.out, self.sources, self.kept, self.root)
        return [path.stem for path in left], sorted(path.name for path in self.out.glob("*"))

    def test_what_a_build_has_left_is_taken(self):
        self.assertEqual(self.left(), ([], ["glu.ptx", "rope.ptx"]))
        self.assertEqual((self.out / "glu.ptx").read_text(), "kept/glu.ptx")

    def test_what_is_missing_is_compiled(self):
        (self.kept / "rope.ptx").unlink()
        self.assertEqual(self.left(), (["rope"], ["glu.ptx"]))

    def test_everything_is_compiled_after_a_change_of_a_header(self):
        self.write("core/types.h", 1000)
        self.assertEqual(self.left(), (["glu", "rope"], []))

    def test_a_source_that_has_changed_is_compiled(self):
        self.write("kernels/cuda/glu.cu", 1001)
        os.utime(self.kept / "rope.ptx", (1002, 1002))
        self.assertEqual(self.left(), (["glu"], ["rope.ptx"]))


if __name__ == "__main__":
    unittest.main()
