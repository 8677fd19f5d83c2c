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


# A document as `qtrain bench step CASE --json FILE` writes it.
ATTRIBUTION = dict(case="qwen3-0.6b", device="NVIDIA H200", step_ms=240.0, tokens_per_second=68266.7,
                   groups=[dict(group="gemm", ms=110.58, predicted_ms=97), dict(group="rope backward", ms=13, predicted_ms=26),
                           dict(group="adapter gemms", ms=0, predicted_ms=0), dict(group="copies", ms=1.5, predicted_ms=None)],
                   kernels=[dict(name="nvjet_tst_128x256", group="gemm", launches=588, ms=110.58)])


class GpuResults(unittest.TestCase):
    def status(self, parts, **files):
        """Checks the exit status for parts that ended like this and left these files, the states in the document, and
        the output."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if parts:
                (folder / "parts.tsv").write_text("".join(f"{part}\t{state}\t9\n" for part, state in parts.items()))
            for file, text in files.items():
                (folder / file.replace("__", ".")).write_text(text)
            command = [sys.executable, PROGRAM, "--parts", folder, "--output", folder / "out", "--command", "c", "--commit",
                       "d", "--seconds", "9"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.results = json.loads((folder / "out").read_text()) if (folder / "out").exists() else None
            return done

    def expect(self, code, parts, **files):
        done = self.status(parts, **files)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return [line.split() for line in done.stdout.splitlines()]

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

    def test_figures_of_which_nothing_is_asked(self):
        some = [dict(figure="copy", value=1.5, goal=3, right=True), dict(figure="free", value=70, goal=None, right=True)]
        lines = self.expect(0, {"kernels": "passed"}, kernels__json=json.dumps(dict(figures=some, problems=[], notes=[])))
        self.assertIn(["copy", "1.5", "3", "0.50"], lines)
        self.assertIn(["free", "70", "-", "-"], lines)
        self.assertEqual([f["ratio"] for f in self.results["figures"]], [0.5, None])

    def test_steps_by_groups_of_kernels(self):
        lines = self.expect(0, {"attribution qwen3-0.6b": "passed"}, **{"attribution_qwen3-0.6b__json": json.dumps(ATTRIBUTION)})
        for row in ("qwen3-0.6b: 240 ms per step, 68267 tokens/s", "group ms predicted ratio", "gemm 110.58 97 1.14",
                    "rope backward 13 26 0.50", "adapter gemms 0 0 -", "copies 1.5 - -", "total 125.08 - -"):
            self.assertIn(row.split(), lines)
        self.assertEqual(self.results["attributions"], [ATTRIBUTION])

    def test_steps_by_groups_that_were_stopped(self):
        name, document = "attribution_a__json", json.dumps(ATTRIBUTION)
        self.expect(0, {"attribution a": STOPPED}, **{name: document})
        for text in (document[:90], "[]", json.dumps(ATTRIBUTION | dict(groups=[])),
                     json.dumps(dict(groups=ATTRIBUTION["groups"])), json.dumps(ATTRIBUTION | dict(groups=[{"ms": 1}]))):
            self.expect(1, {"attribution a": STOPPED}, **{name: text})
            self.expect(1, {"attribution a": "passed"}, **{name: text})
        self.expect(1, {"attribution a": "passed"})
        self.expect(0, {"attribution a": "skipped: it needs a card of 100 GB"})

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
