#!/usr/bin/env python3
"""Which goals apply to which card (bench/peers/gpu_card.py).

    python3 tests/scripts/gpu_card_test.py"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/peers"))
import gpu_card  # noqa: E402


class GpuCard(unittest.TestCase):
    def test_rows_of_names_that_drivers_report(self):
        for name, row in {"NVIDIA H200": "H200", "NVIDIA H200 NVL": "H200 NVL", "NVIDIA H100 80GB HBM3": "H100 80GB",
                          "NVIDIA H100 PCIe": "H100 PCIe", "NVIDIA A100-SXM4-80GB": "A100 80GB",
                          "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB", "NVIDIA GeForce RTX 4060 Ti": "RTX 4060 Ti",
                          "Tesla T4": "T4", "NVIDIA GH200 480GB": None, "": None, None: None}.items():
            with self.subTest(name=name):
                self.assertEqual(gpu_card.model_of(name), row)

    def test_goals(self):
        for name, copy, gemm in (("NVIDIA H200", 4.3e12, 790e12), ("NVIDIA H100 80GB HBM3", 3.0e12, 790e12),
                                 ("NVIDIA GeForce RTX 4090", 0.89 * 1008e9, None), ("NVIDIA H300", None, None)):
            with self.subTest(name=name):
                self.assertEqual(gpu_card.goals(name), dict(copy=copy, gemm=gemm))

    def test_every_card_of_the_table_has_a_bandwidth(self):
        text = (Path(gpu_card.__file__).parents[2] / "plan/gpus.yaml").read_text(encoding="utf-8")
        rows = text.split("\ngpus:\n")[1].splitlines()
        self.assertEqual(len(gpu_card.table()), len(rows))


if __name__ == "__main__":
    unittest.main()
