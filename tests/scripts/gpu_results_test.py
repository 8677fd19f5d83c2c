#!/usr/bin/env python3
"""Which ends of the parts of scripts/gpu_suite.sh are failures (scripts/gpu_results.py).

    python3 tests/scripts/gpu_results_test.py"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "scripts/gpu_results.py"
STOPPED = "stopped after 9 s"
HEADER = "========= COMPUTE-SANITIZER\n"


def figures(right=True, problems=()):
    return json.dumps(dict(figures=[dict(figure="f", value=1, goal=2, right=right)], problems=list(problems), notes=[]))


class GpuResults(unittest.TestCase):
    def status(self, parts, **files):
        """The exit status for parts that ended so, with files that they have left."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if parts:
                (folder / "parts.tsv").write_text("".join(f"{part}\t{state}\t9\n" for part, state in parts.items()))
            for file, text in files.items():
                (folder / file.replace("__", ".")).write_text(text)
            command = [sys.executable, PROGRAM, "--parts", folder, "--output", folder / "out", "--command", "c", "--commit",
                       "d", "--seconds", "9"]
            return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def expect(self, code, parts, **files):
        done = self.status(parts, **files)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_what_passed_or_needs_what_is_not_here(self):
        self.expect(0, {"doctor": "passed", "memcheck": "skipped: there is no compute-sanitizer"})
        self.expect(1, {"doctor": "failed with 2"})
        self.expect(1, {"doctor": "passed", "racecheck": "no time left"})
        self.expect(1, {})

    def test_measurements_that_were_stopped(self):
        self.expect(0, {"kernels": STOPPED}, kernels__json=figures())
        self.expect(1, {"kernels": STOPPED})
        self.expect(1, {"kernels": STOPPED}, kernels__json=figures(right=False))
        self.expect(1, {"kernels": STOPPED}, kernels__json=figures(problems=["one"]))
        self.expect(0, {"step a": STOPPED}, step_a__json=figures())
        self.expect(1, {"step a": STOPPED}, step_b__json=figures())
        self.expect(0, {"qtrain bench": STOPPED}, bench__json="[1]")
        self.expect(1, {"qtrain bench": STOPPED})

    def test_sanitizers_that_were_stopped(self):
        self.expect(0, {"memcheck": STOPPED}, memcheck__found=HEADER)
        self.expect(0, {"memcheck": STOPPED}, memcheck__found=HEADER + "========= ERROR SUMMARY: 0 errors\n")
        self.expect(1, {"memcheck": STOPPED}, memcheck__found=HEADER + "========= Invalid __global__ read of size 4\n")
        self.expect(1, {"memcheck": "failed with 9"}, memcheck__found=HEADER)

    def test_tests_that_were_stopped(self):
        report = json.dumps(dict(tests=2, passed=1, skipped=0, failed=[], not_run=["b"]))
        self.expect(1, {"test_cuda": STOPPED}, test_cuda__tests__json=report)
        self.expect(1, {"test_cuda": "passed"})  # without a report


if __name__ == "__main__":
    unittest.main()
