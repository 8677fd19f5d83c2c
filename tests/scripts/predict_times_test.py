#!/usr/bin/env python3
"""The predicted times of kernels and steps against sums by hand, and the pages that show them.

    python3 tests/scripts/predict_times_test.py"""

import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import kernel_times  # noqa: E402
import predict_times  # noqa: E402

# One multiprocessor at 1 GHz.
GPU = kernel_times.Gpu("small", 1, 4096e9, 1e9, 4096, 0.5, False,
                        {"copy": 0.5, "overlap": 0.25, "gemm": 0.5, "wgmma": 0.5, "skinny": 0.25, "gap_seconds": 1e-6,
                         "tile_seconds": 1e-6})
ROW = dict.fromkeys((*kernel_times.INSTRUCTIONS, "moves", "global_bytes", "sectors", "wavefronts"), 0)


class Terms(unittest.TestCase):
    def test_units_are_busy_for_what_they_get(self):
        row = ROW | {"float": 3000, "integer": 1000, "moves": 999, "wavefronts": 500, "mma": 10, "global_bytes": 640,
                     "sectors": 10}
        of = kernel_times.terms(GPU, row, 2)
        expected = {"instructions": 2 * 4010 / 4 * 1e-9, "shared memory": 2 * 500 * 1e-9,
                    "tensor cores": 2 * 10 * 4096 / (4096e9 * 0.5), "DRAM": 2 * 320 / 0.5e9}
        for unit, value in expected.items():
            self.assertAlmostEqual(of[unit], value, delta=1e-15, msg=unit)

    def test_slower_instructions_count(self):
        self.assertAlmostEqual(kernel_times.terms(GPU, ROW | {"special": 100}, 1)["instructions"], 200e-9, delta=1e-15)
        self.assertAlmostEqual(kernel_times.terms(GPU, ROW | {"integer": 100}, 1)["instructions"], 50e-9, delta=1e-15)

    def test_bytes_may_be_given(self):
        self.assertAlmostEqual(kernel_times.terms(GPU, ROW | {"global_bytes": 9999, "sectors": 999}, 1, 5)["DRAM"],
                               1e-8, delta=1e-15)

    def test_the_longest_counts_in_full(self):
        self.assertAlmostEqual(kernel_times.seconds(GPU, {"a": 4.0, "b": 1.0, "c": 3.0}), 5.0)


class Steps(unittest.TestCase):
    def test_gemms_take_no_less_than_their_operations(self):
        h200 = next(g for g in kernel_times.gpus() if g.name == "H200")
        for shape in ((16384, 1024, 3072), (16384, 151936, 1024), (1024, 1024, 16384), (16384, 16, 1024)):
            m, n, k = shape
            least = 2 * m * n * k / (h200.flops * h200.shares["gemm"])
            self.assertGreater(kernel_times.gemm_seconds(h200, m, n, k), least, shape)
        self.assertLess(kernel_times.gemm_seconds(h200, 16384, 16384, 16384),
                        1.2 * 2 * 16384**3 / (h200.flops * h200.shares["gemm"]))

    def test_clocks_are_those_of_the_data_sheets(self):
        clocks = {g.name: round(g.clock / 1e9, 2) for g in kernel_times.gpus()}
        self.assertEqual(clocks, {"H100 80GB": 1.83, "H200": 1.83, "A100 80GB": 1.41, "RTX 5090": 2.41})

    def test_attention_works_on_the_tiles_below_the_diagonal(self):
        model = kernel_times.Model("one", 0, 0, 1, 16, 8, 128, 0, True, True)
        one, two = ({"kernel": ROW | {"float": 7 * n + 5 * n * (n + 1) // 2, "integer": n}} for n in (1, 2))
        for work in kernel_times.attention_work(model, kernel_times.LENGTH):
            row = work.rows({work.case + " sm_80": {work.kernel + "k": one["kernel"]},
                             work.case.replace("/128", "/256") + " sm_80": {work.kernel + "k": two["kernel"]}})
            self.assertEqual(row[work.kernel + "k"]["float"], 7 * 16 + 5 * 136)  # 16 blocks, 1 + ... + 16 tiles
            self.assertEqual(row[work.kernel + "k"]["integer"], 16)
            self.assertEqual(work.times, 1)

    def test_adapters_take_time_of_their_own(self):
        document = json.loads(kernel_times.CASES.read_text(encoding="utf-8"))
        config, case = document["models"]["qwen3-0.6b"], document["cases"]["qwen3-0.6b-qlora"]
        h200 = next(g for g in kernel_times.gpus() if g.name == "H200")
        ms = kernel_times.step(h200, kernel_times.counts(), kernel_times.model_of(config, ""), case)
        self.assertGreater(ms["adapter gemms"], 0.05 * sum(ms.values()))

    def test_expanding_weights_takes_time(self):
        document = json.loads(kernel_times.CASES.read_text(encoding="utf-8"))
        model = kernel_times.model_of(document["models"]["llama-3.1-8b"], "")
        h200 = next(g for g in kernel_times.gpus() if g.name == "H200")
        case = document["cases"]["llama-3.1-8b-qlora"]
        dense = case | {"config": {k: v for k, v in case["config"].items() if "4bit" not in k}}
        ms, without = (kernel_times.step(h200, kernel_times.counts(), model, c) for c in (case, dense))
        inner = model.weights - 2 * model.vocabulary * model.width
        least = 1e3 * case["accumulation"] * 2 * inner * 2.5 / h200.bandwidth  # codes are read and 16 bits written
        self.assertGreater(ms["dequantize"], least)
        self.assertEqual(without["dequantize"], 0)

    def test_gemms_in_fp8_are_faster_where_they_are_used(self):
        document = json.loads(kernel_times.CASES.read_text(encoding="utf-8"))
        model = kernel_times.model_of(document["models"]["llama-3.1-8b"], "")
        gpus = {g.name: g for g in kernel_times.gpus()}
        case = document["cases"]["llama-3.1-8b-fp8"]

        def gemms(gpu, **config):
            found = case | {"config": case["config"] | config}
            return kernel_times.step(gpus[gpu], kernel_times.counts(), model, found)["gemm"]
        dense = gemms("H200", fp8=False)
        # The GEMM of dx is half of those in blocks, which the head, in 16 bits, makes up for less than a tenth.
        self.assertLess(gemms("H200"), (0.5 + 0.5 / 1.75 + 0.1) * dense)
        self.assertGreater(gemms("H200"), (0.5 + 0.5 / 1.75) * dense)
        self.assertLess(gemms("H200", fp8_forward=True), (1 / 1.75 + 0.1) * dense)
        self.assertLess(gemms("H200", fp8_recipe="tensorwise"), gemms("H200"))
        self.assertEqual(gemms("RTX 5090"), gemms("RTX 5090", fp8_recipe="tensorwise"), "it has no scales for blocks")

    def test_adapters_are_in_the_gemms_of_their_layers_if_that_moves_less(self):
        model = kernel_times.Model("one", 1024, 3072, 1, 16, 8, 128, 0, True, True)

        def joined(tokens, config):
            groups = kernel_times.groups_of(model, tokens, {"config": config})
            return [[int(g.with_y) for g in groups], [int(g.with_dx) for g in groups]]
        # q, k, v; o; gate, up; down. The copies of dense weights need more tokens.
        self.assertEqual(joined(16384, {"load_in_4bit": True}), [[1, 0, 1, 1], [0, 1, 0, 1]])
        self.assertEqual(joined(16384, {}), [[1, 0, 1, 1], [0, 1, 0, 1]])
        self.assertEqual(joined(2048, {}), [[1, 0, 1, 0], [0, 1, 0, 1]])
        self.assertEqual(joined(1024, {}), [[0, 0, 0, 0], [0, 0, 0, 0]])
        self.assertEqual(joined(16384, {"fp8": True}), [[0, 0, 0, 0], [0, 0, 0, 0]])

    def test_sums_of_adapters_by_hand(self):
        # A part of 640 tokens and four of 256 outputs.
        self.assertEqual(kernel_times.adapter_sums(640, (1024,)), 16 * (4 * 640 + 1024))
        # 26 parts of up to 640 tokens, and three of up to 256 outputs.
        self.assertEqual(kernel_times.adapter_sums(16384, (640,)), 16 * (3 * 16384 + 26 * 640))
        # The sums of all tokens would take more than 16 MiB.
        half = kernel_times.adapter_sums(4096, (14336, 14336))
        self.assertEqual(kernel_times.adapter_sums(8192, (14336, 14336)), 2 * half)


class Pages(unittest.TestCase):
    def test_they_match_the_counts(self):
        for path, text in predict_times.texts().items():
            self.assertEqual(path.read_text(encoding="utf-8"), text,
                             f"{path.relative_to(ROOT)}: scripts/predict_times.py --write")


if __name__ == "__main__":
    unittest.main()
