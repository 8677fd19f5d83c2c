#!/usr/bin/env python3
"""Which kernels scripts/gpu_profile.py takes, and what it does with a profiler that works, fails or takes too long.

    python3 tests/scripts/gpu_profile_test.py"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts/gpu_profile.py"
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_profile  # noqa: E402

PROFILER = """#!PYTHON
import pathlib, sys, time
if "--export" not in sys.argv:
    print("a page")
    sys.exit(0)
name = sys.argv[sys.argv.index("--kernel-name") + 1]
if "cross" in name:
    print("==ERROR== Failed to initialize the profiler: LibraryNotLoaded")
elif "rms" in name:
    time.sleep(60)
else:
    pathlib.Path(sys.argv[sys.argv.index("--export") + 1]).write_text("report")
"""


def attribution(step_ms, **kernels):
    """Results in which kernels, {name: (group, milliseconds)}, took these times."""
    return dict(step_ms=step_ms, kernels=[dict(name=n, group=g, ms=ms, launches=1) for n, (g, ms) in kernels.items()])


class GpuProfile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, results, *words):
        program = self.folder / "ncu"
        program.write_text(PROFILER.replace("PYTHON", sys.executable))
        program.chmod(0o755)
        (self.folder / "results.json").write_text(json.dumps(results))
        environment = os.environ | dict(PATH=f"{self.folder}:{os.environ['PATH']}", OUT=str(self.folder / "out"))
        return subprocess.run([sys.executable, PROGRAM, "--prebuilt", "built", "--results", self.folder / "results.json", *words],
                              env=environment, capture_output=True, text=True, timeout=100)

    def test_the_hottest_kernels_of_all_steps(self):
        results = dict(attributions=[
            attribution(200, attention_grad=("attention backward", 40), normed_rope_grad=("rope backward", 26), nvjet=("gemm", 90),
                        lora=("adapter GEMMs", 50), glu=("other element-wise", 2)),
            attribution(1000, attention_grad=("attention backward", 50), dequantize4=("other element-wise", 60),
                        magnitude_grad=("other element-wise", 900))])
        chosen, left_out = gpu_profile.hottest(results, 3)
        self.assertEqual([name for name, _ in chosen], ["attention_grad", "normed_rope_grad", "dequantize4"])
        for (_, share), wanted in zip(chosen, (0.125, 0.065, 0.03)):
            self.assertAlmostEqual(share, wanted)
        self.assertEqual(left_out, ["magnitude_grad, 45.0% of a step: no case of qtrain bench runs it alone"])

    def test_functions_stand_for_their_launches(self):
        for name, launch in (("attention_grad_tile<bf16, 128>", "attention_grad"),
                             ("attention_grad_warpgroups<bf16, 128>", "attention_grad"),
                             ("normed_rope_heads_grad", "normed_rope_grad")):
            results = dict(attributions=[attribution(10, **{name: ("g", 5)})])
            self.assertEqual(gpu_profile.hottest(results, 5)[0], [(launch, 0.5)])

    def test_without_an_attribution_what_was_predicted(self):
        chosen, _ = gpu_profile.hottest({}, 5)
        self.assertEqual([name for name, _ in chosen], list(gpu_profile.PREDICTED))

    def test_every_kernel_and_case_exists(self):
        kernels = "".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "kernels/cuda").glob("*.cu*")))
        cases = "".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "bench/cases").glob("*_cases.cpp")))
        for launch, (function, case) in gpu_profile.KERNELS.items():
            with self.subTest(launch=launch):
                self.assertTrue(re.search(rf"\b{function}\(", kernels), f"no kernel is called {function}")
                self.assertTrue(f'"{launch}"' in kernels, f"nothing launches {launch}")
                self.assertIn(f'"{case.split("/")[0]}/', cases)
        for launch in gpu_profile.PREDICTED:
            self.assertIn(launch, gpu_profile.KERNELS)

    def test_a_dry_run_prints_the_commands(self):
        done = self.run_program({}, "--dry-run", "--most", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second, third = done.stdout.splitlines()
        self.assertRegex(first, r"--kernel-name 'regex:\^attention_grad_\(tile\|warpgroups\)' .*--launch-count 1 "
                                r"built/bin/qtrain bench attention_grad/hd128/4096 --device cuda$")
        for section in ("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "SourceCounters"):
            self.assertIn(f"--section {section}", first)
        self.assertTrue(re.search(r"--page details > .*/attention_grad.txt$", second), second)
        self.assertTrue(re.search(r"--page source .*--csv > .*/attention_grad.source.csv$", third), third)
        self.assertFalse((self.folder / "out").exists())

    def test_how_each_kernel_ended(self):
        results = dict(attributions=[attribution(10, cross_entropy=("g", 5), rms_norm=("g", 3), attention=("g", 1))])
        done = self.run_program(results, "--seconds", "4")
        self.assertEqual(done.returncode, 1, done.stderr)
        states = {d["kernel"]: d["state"] for d in json.loads((self.folder / "out/profile/profile.json").read_text())}
        self.assertRegex(states.pop("rms_norm"), r"^stopped after 5 s$")
        self.assertEqual(states, dict(cross_entropy="Failed to initialize the profiler: LibraryNotLoaded",
                                      attention="profiled"))
        self.assertEqual((self.folder / "out/profile/attention.txt").read_text(), "a page\n")
        done = self.run_program(dict(attributions=[attribution(10, attention=("g", 1))]))
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
