#!/usr/bin/env python3
"""bench/peers/gpu_step.py with stand-ins for qtrain and for nvidia-smi, which reports a card; and its table of cases,
which `qtrain bench step` reads too.

    python3 tests/scripts/gpu_step_test.py"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEP = ROOT / "bench/peers/gpu_step.py"
TABLE = json.loads((ROOT / "bench/step_cases.json").read_text(encoding="utf-8"))
GROUPS = ["gemm", "dequantize", "attention forward", "attention backward", "rope backward", "other element-wise",
          "adapter gemms", "cross-entropy", "update", "gaps"]
# The small model's initial loss: ln 512 + 64 * 0.02^2 / 2.
QTRAIN = """#!PYTHON
import json, pathlib, sys, time
config = json.load(open(sys.argv[1]))
out = pathlib.Path(config["output_dir"])
out.mkdir()
(out / "resolved_config.json").write_text(json.dumps(dict(run=dict(memory_plan=dict(total=3 << 30)))))
with open(out / "metrics.jsonl", "w") as file:
    for step in range(config["max_steps"]):
        print(json.dumps(dict(loss=6.2512, tokens_per_second=1000 + step, device_mb=2048)), file=file, flush=True)
        time.sleep(0.2)
    time.sleep(60)
"""
SMI = """#!/bin/sh
if [ -f FOLDER/asked ]; then used=4096; else used=1024; fi
touch FOLDER/asked
echo "NAME, TOTAL, $used, 77000"
"""


class GpuStep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, name, text):
        file = self.folder / name
        file.write_text(text.replace("PYTHON", sys.executable).replace("FOLDER", str(self.folder)))
        file.chmod(0o755)
        return file

    def run_step(self, *words, card="NVIDIA H100 80GB HBM3", total=81559):
        """The exit status and output on a machine with such a GPU, where PyTorch cannot be imported."""
        self.program("nvidia-smi", SMI.replace("NAME", card).replace("TOTAL", str(total)))
        (self.folder / "torch.py").write_text("raise ImportError('none is here')\n")
        environment = os.environ | dict(PATH=f"{self.folder}:{os.environ['PATH']}", PYTHONPATH=str(self.folder))
        done = subprocess.run([sys.executable, STEP, *words], env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout

    def measured(self, **machine):
        status, _ = self.run_step("--qtrain", self.program("qtrain", QTRAIN), "--case", "qwen3-0.6b", "--small", "--json",
                                  self.folder / "step.json", **machine)
        self.assertEqual(status, 0)
        return json.loads((self.folder / "step.json").read_text())

    def test_memory_in_a_step_stands_beside_the_plan(self):
        result = self.measured()
        wanted = dict(planned_bytes=3 << 30, allocated_bytes=2 << 30, used_bytes=4 << 30, free_bytes=77000 << 20,
                      total_bytes=81559 << 20, used_before_bytes=1 << 30)
        self.assertEqual(result["ours"]["memory"], wanted)
        (figure,) = [f for f in result["figures"] if "free" in f["figure"]]
        self.assertEqual(figure["figure"], "qwen3-0.6b GiB free after step 3, 3.0 planned")
        self.assertAlmostEqual(figure["value"], 77000 / 1024)
        self.assertIsNone(figure["goal"])
        self.assertEqual({key: figure[key] for key in wanted}, wanted)

    def test_goals_of_another_card_say_whose_they_are(self):
        for card, name in (("NVIDIA H100 80GB HBM3", "qwen3-0.6b tokens/s (goal of one H200)"),
                           ("NVIDIA H200", "qwen3-0.6b tokens/s")):
            with self.subTest(card=card):
                (self.folder / "asked").unlink(missing_ok=True)
                self.assertEqual(self.measured(card=card)["figures"][0]["figure"], name)

    def test_a_case_that_needs_a_larger_card(self):
        reason = "it needs a card of 100 GB, and NVIDIA H100 80GB HBM3 has 86 GB\n"
        for case, total, wanted in (("qwen3-8b-adamw8bit", 81559, (77, reason)), ("qwen3-0.6b", 81559, (0, "\n")),
                                    ("qwen3-8b-adamw8bit", 143771, (0, "\n"))):
            with self.subTest(case=case, total=total):
                self.assertEqual(self.run_step("--case", case, "--needs", total=total), wanted)

    def test_the_table_of_cases_is_whole(self):
        for name, case in TABLE["cases"].items():
            if "goals" not in case:  # for processors
                continue
            with self.subTest(case=name):
                model = TABLE["models"][case["model"]]
                self.assertEqual(case["batch"] * case["accumulation"] * case["config"]["max_length"], 16384)
                self.assertLessEqual(case.get("layers", 1), model["num_hidden_layers"])
                self.assertEqual(set(case["goals"]) - {"extreme"}, {"tokens_per_second", "ratio"})
                if "predicted_ms" in case:
                    self.assertEqual(list(case["predicted_ms"]), GROUPS)
                    self.assertEqual(case["predicted_layers"], model["num_hidden_layers"])


if __name__ == "__main__":
    unittest.main()
