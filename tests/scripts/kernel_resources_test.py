#!/usr/bin/env python3
"""What scripts/kernel_resources.py takes from the log of a build.

    python3 tests/scripts/kernel_resources_test.py"""

import importlib.util
import os
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/kernel_resources.py"
SPEC = importlib.util.spec_from_file_location("kernel_resources", SCRIPT)
resources = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(resources)

# The output of nvcc 13.0 in a ninja log.
LOG = """[1/4] Building CXX object core/CMakeFiles/qtrain_core.dir/file.cpp.o
[2/4] Building CUDA object kernels/CMakeFiles/qtrain_kernels.dir/cuda/rope.cu.o
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4ropePf' for 'sm_90a'
ptxas info    : Function properties for _Z4ropePf
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 48 registers, used 1 barriers, 16 bytes cumulative stack size, 256 bytes smem
ptxas info    : Compile time = 12.000 ms
[3/4] Building CUDA object kernels/CMakeFiles/qtrain_kernels.dir/cuda/clip.cu.o
FAILED: kernels/CMakeFiles/qtrain_kernels.dir/cuda/clip.cu.o
error: it does not compile
[4/4] Building CUDA object tests/cuda/CMakeFiles/test_cuda.dir/ptx_kernels.cu.o
"""


class BuildLog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.sources = [self.folder / f"{name}.cu" for name in ("rope", "clip", "glu", "ptx_kernels")]
        for source in self.sources:
            source.write_text("")
            os.utime(source, (1000, 1000))
        self.log = self.folder / "build.log"
        self.log.write_text(LOG)

    def test_only_what_was_compiled_without_an_error_is_taken(self):
        self.assertEqual([s.stem for s in resources.reports_of(self.log, self.sources)], ["rope"])

    def test_a_source_that_changed_since_is_compiled(self):
        os.utime(self.log, (900, 900))
        self.assertEqual(resources.reports_of(self.log, self.sources), {})

    def test_without_a_log_all_is_compiled(self):
        self.assertEqual(resources.reports_of(self.folder / "none.log", self.sources), {})
        self.assertEqual(resources.reports_of(None, self.sources), {})

    def test_waits_between_products_are_reported(self):
        said = ("ptxas info    : (C7517) warpgroup.wait is injected in around line 72 by compiler to allow use of "
                "registers defined by GMMA in function '_Z3badPfyy'")
        _, complaints = resources.read_report(said + "\n" + LOG.partition("\n")[2], self.sources[0], "90a")
        self.assertEqual(complaints, [f"rope.cu for sm_90a: {said}"])

    def test_the_report_is_read_as_that_of_a_compilation(self):
        text = resources.reports_of(self.log, self.sources)[self.sources[0]]
        rows, complaints = resources.read_report(text, self.sources[0], "90a")
        self.assertEqual(complaints, [])
        self.assertEqual(rows, [("rope", "rope", "90a", "48", "256", "16", "8", "12")])

    def test_a_warning_is_a_complaint(self):
        _, complaints = resources.read_report("rope.cu(3): warning #177-D: it is never used\n", self.sources[0], "90a")
        self.assertEqual(len(complaints), 1)
        self.assertIn("never used", complaints[0])


class Table(unittest.TestCase):
    ROWS = [("clip", "scale<float>", "80", "32", "0", "0", "0", "0"),
            ("clip", "scale<float>", "90a", "40", "0", "0", "0", "0"),
            ("clip", "scale<float>", "120", "40", "0", "16", "8", "12"),
            ("rope", "rope<F16, 1>", "80", "24", "128", "0", "0", "0"),
            ("rope", "rope<F16, 1>", "80", "26", "128", "0", "0", "0"),  # of the same name in another namespace
            ("rope", "rope<F16, 1>", "90a", "24", "256", "8", "0", "0")]

    def test_a_line_has_all_architectures_of_a_kernel(self):
        self.assertEqual(resources.table_of(self.ROWS)[1:], [
            ["clip.cu"], ["scale<float>", "0", "32", "40", "40 stack=16 spill_stores=8 spill_loads=12"],
            ["rope.cu"], ["rope<F16, 1>", "128", "24", "", ""], ["rope<F16, 1>", "128", "26", "", ""],
            ["rope<F16, 1>", "256", "", "24 stack=8", ""]])

    def test_is_read_as_it_was_written(self):
        self.assertEqual(sorted(resources.rows_of(resources.table_of(self.ROWS))), sorted(self.ROWS))

    def test_every_kernel_of_the_program_is_in_it(self):
        version, rows = resources.read_table()
        self.assertRegex(version, r"^\d+\.\d+\.\d+$")
        self.assertGreater(len(rows), 1500)
        self.assertEqual({row[2] for row in rows}, set(resources.IN_TABLE))
        self.assertEqual({len(row) for row in rows}, {len(resources.COLUMNS)})


if __name__ == "__main__":
    unittest.main()
