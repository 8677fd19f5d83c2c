#!/usr/bin/env python3
"""bench/compare_baselines.py with a valgrind and a program that say what they are told to.

    python3 tests/scripts/compare_baselines_test.py"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench/compare_baselines.py"
BENCH = """#!PYTHON
import json
print(json.dumps({"compiler": "GNU 12.2.0", "flags": "-O3", "cpu": "any", "cases": ["a", "b"]}))
"""
VALGRIND = """#!PYTHON
import os, sys
COUNTS = NUMBERS
assert os.environ["QTRAIN_CPU_ISA"] == "avx2" and "--toggle-collect=qtrain_counted" in sys.argv
out = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--callgrind-out-file=")][0]
assert sys.argv[-2] == "--run"
if sys.argv[-1] not in COUNTS:
    sys.exit("unknown case " + sys.argv[-1])
open(out, "w").write("events: Ir\\nfn=qtrain_counted\\n1 2\\ntotals: %d\\n" % COUNTS[sys.argv[-1]])
"""


class CompareBaselines(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.baselines = Path(self.folder.name) / "baselines.json"
        self.write_baselines({"a": 1000, "b": 2000})

    def write_baselines(self, cases, compiler="GNU 12.2.0"):
        self.baselines.write_text(json.dumps({"unit": "instructions", "isa": "avx2", "compiler": compiler,
                                              "flags": "-O3", "cases": cases}))

    def program(self, name, text):
        path = Path(self.folder.name) / name
        path.write_text(text.replace("PYTHON", sys.executable))
        path.chmod(0o755)
        return path

    def run_script(self, counts, *words):
        valgrind = self.program("valgrind", VALGRIND.replace("NUMBERS", repr(counts)))
        return subprocess.run([sys.executable, SCRIPT, "--bench", self.program("bench_cases", BENCH), "--baselines",
                               self.baselines, "--valgrind", valgrind, *words], capture_output=True, text=True,
                              env=dict(os.environ, QTRAIN_CPU_ISA="avx512"))

    def cases(self):
        return json.loads(self.baselines.read_text())["cases"]

    def test_growth_up_to_the_tolerance_passes(self):
        self.assertEqual(self.run_script({"a": 1030, "b": 2000}).returncode, 0)

    def test_more_growth_fails_and_names_the_case(self):
        run = self.run_script({"a": 1031, "b": 2000})
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stdout, r"a +1000 -> +1031 +\+3\.10 %  GREW")
        self.assertIn("not counted: a", run.stdout)
        self.assertEqual(self.run_script({"a": 1031, "b": 2000}, "--tolerance", "4").returncode, 0)

    def test_fewer_instructions_pass_with_a_hint(self):
        run = self.run_script({"a": 500, "b": 2000})
        self.assertEqual(run.returncode, 0)
        self.assertIn("--write a", run.stdout)

    def test_a_case_that_does_not_run_fails_and_the_others_are_counted(self):
        run = self.run_script({"b": 2000})
        self.assertEqual(run.returncode, 1)
        self.assertIn("unknown case a", run.stderr)
        self.assertIn("2000 ->", run.stdout)

    def test_a_count_of_nothing_is_no_count(self):
        self.assertEqual(self.run_script({"a": 0, "b": 2000}).returncode, 1)

    def test_another_compiler_is_not_compared(self):
        self.write_baselines({"a": 1000}, compiler="Clang 14.0.6")
        run = self.run_script({"a": 9000})
        self.assertEqual(run.returncode, 3)
        self.assertIn("Clang 14.0.6", run.stdout)

    def test_write_renews_all_or_the_named_ones(self):
        self.assertEqual(self.run_script({"a": 1, "b": 2}, "--write", "b").returncode, 0)
        self.assertEqual(self.cases(), {"a": 1000, "b": 2})
        self.assertEqual(self.run_script({"a": 1, "b": 2}, "--write").returncode, 0)
        self.assertEqual(self.cases(), {"a": 1, "b": 2})

    def test_some_cases_of_another_build_are_not_mixed_in(self):
        self.write_baselines({"a": 1000, "b": 2000}, compiler="Clang 14.0.6")
        self.assertEqual(self.run_script({"a": 1, "b": 2}, "--write", "b").returncode, 3)
        self.assertEqual(self.cases(), {"a": 1000, "b": 2000})
        self.assertEqual(self.run_script({"a": 1, "b": 2}, "--write").returncode, 0)
        self.assertEqual(json.loads(self.baselines.read_text())["compiler"], "GNU 12.2.0")

    def test_without_valgrind_nothing_is_compared(self):
        run = self.run_script({}, "--valgrind", "no-such-program")
        self.assertEqual(run.returncode, 3)
        self.assertIn("not installed", run.stdout)


if __name__ == "__main__":
    unittest.main()
