#!/usr/bin/env python3
"""The README's claim, table and picture are those of the committed results (bench/peers/cpu_peers.py, bars.py).

    python3 tests/scripts/cpu_peers_test.py"""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))
import bars  # noqa: E402
import cpu_peers  # noqa: E402


def peer(speed, memory):
    median = dict(tokens_per_second_after_first=speed, peak_rss_mb=memory, total_seconds=1)
    return dict(median=median, runs=[median] * 3)


def case(name, ours, float32, bfloat16):
    return dict(name=name, qtrain=peer(*ours), trl=dict(float32=peer(*float32), bfloat16=peer(*bfloat16)),
                faster_trl_dtype="float32" if float32[0] > bfloat16[0] else "bfloat16")


RESULTS = dict(
    processor=dict(name="AMD EPYC <9654> 96-Core Processor", family="25", model="17", instructions=["avx2", "avx512f"]),
    threads=2, memory_gb=16.0, system="Linux", load_before=0.1, commit="01234567", qtrain="qtrain 0.1.0",
    versions=dict(torch="9.1", transformers="9.2", trl="9.3", peft="9.4"), command="bench/peers/cpu_peers.py --qtrain qtrain",
    cases=[case("LoRA, float32, AVX2", (200, 1300), (100, 4000), (50, 3000)),
           case("LoRA, fastest dtype", (300, 1000), (120, 4000), (150, 2500)),
           case("full fine-tuning, float32, AVX2", (90, 3000), (100, 5000), (10, 4000))])


class Bars(unittest.TestCase):
    def test_table_counts_trl_in_its_faster_dtype(self):
        rows = [line for line in bars.table(RESULTS).splitlines() if line.startswith("| ") and "tokens/s" in line]
        self.assertEqual(rows, [
            "| LoRA, float32, AVX2 | 200 tokens/s | 100 tokens/s (float32) | 2.0 | 1.3 GB | 4.0 GB |",
            "| LoRA, fastest dtype | 300 tokens/s | 150 tokens/s (bfloat16) | 2.0 | 1.0 GB | 2.5 GB |",
            "| full fine-tuning, float32, AVX2 | 90 tokens/s | 100 tokens/s (float32) | 0.9 | 3.0 GB | 5.0 GB |"])

    def test_note_names_machine_versions_and_commit(self):
        note = bars.table(RESULTS).replace("\n", " ")
        for words in ("2 cores of an AMD EPYC <9654> 96-Core with AVX-512", "medians of 3 rounds", "torch 9.1",
                      "transformers 9.2", "trl 9.3", "peft 9.4", "commit 01234567", "bench/results/cpu_peers.json"):
            self.assertIn(words, note)
        self.assertNotIn("other work", note)
        self.assertIn("other work (load 3.0)", bars.table(RESULTS | dict(load_before=3.0)).replace("\n", " "))

    def test_claim_is_one_number_and_what_it_comes_from(self):
        said = bars.claim(RESULTS)
        self.assertTrue(said.startswith("**2.0 times the speed of TRL on a CPU**: 300 against 150"))
        self.assertIn("1.0 against 2.5 GB", said.replace("\n", " "))
        self.assertLessEqual(max(map(len, said.splitlines())), 80)

    def test_picture_is_a_document_with_every_figure(self):
        drawn = xml.fromstring("\n".join(bars.picture(RESULTS)))
        kind = {"{http://www.w3.org/2000/svg}text": [], "{http://www.w3.org/2000/svg}rect": []}
        for element in drawn.iter():
            if element.tag in kind:
                kind[element.tag].append(element)
        words = [element.text for element in kind["{http://www.w3.org/2000/svg}text"]]
        for label in ("200", "300", "90", "100", "150", "1.3 GB", "4.0 GB", "2.5 GB", "LoRA, fastest dtype", "qtrain", "TRL"):
            self.assertIn(label, words)
        widths = [(e.get("class"), float(e.get("width"))) for e in kind["{http://www.w3.org/2000/svg}rect"]
                  if e.get("height") == str(bars.BAR)]
        self.assertEqual(len(widths), 12)
        self.assertEqual(widths[2], ("ours", bars.BAR_WIDTH))  # the fastest
        self.assertAlmostEqual(widths[0][1] / widths[2][1], 2 / 3, 2)

    def test_readme_keeps_everything_outside_the_comments(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        once = bars.readme_with(readme, RESULTS)
        self.assertEqual(bars.readme_with(once, RESULTS), once)
        blank = re.compile(r"(<!-- (cpu_peers\S*) -->).*?(<!-- /\2 -->)", re.S)
        self.assertEqual(blank.sub(r"\1\3", once), blank.sub(r"\1\3", readme))
        with self.assertRaises(SystemExit):
            bars.readme_with("no comments", RESULTS)


class Committed(unittest.TestCase):
    def test_readme_and_picture_are_made_of_the_results(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        if not bars.RESULTS.exists():
            self.assertIn("<!-- cpu_peers -->\n<!-- /cpu_peers -->", readme, "a table without results")
            self.assertFalse(bars.PICTURE.exists(), "a picture without results")
            return
        results = json.loads(bars.RESULTS.read_text(encoding="utf-8"))
        self.assertEqual(bars.readme_with(readme, results), readme, "write it again: bench/peers/bars.py")
        self.assertEqual("\n".join(bars.picture(results)) + "\n", bars.PICTURE.read_text(encoding="utf-8"),
                         "draw it again: bench/peers/bars.py")


class Driver(unittest.TestCase):
    """Runs cpu_peers.py with stand-ins for both programs."""

    def measure(self, *options, load=0.1, float32=140):
        ran = []

        def result(name, values, speed):
            ran.append((name, values.full, tuple(values.set), os.environ.get("QTRAIN_CPU_ISA", "")))
            return dict(tokens_per_second_after_first=speed, peak_rss_mb=1000, total_seconds=2, tokens=10, losses=[1.0],
                        versions=dict(torch="9.1", transformers="9.2", trl="9.3", peft="9.4"))

        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "results/cpu_peers.json"
            line = ["cpu_peers.py", "--qtrain", "/bin/true", "--model", "/some/place/model", "--data", "rows.jsonl",
                    "--output", str(output), *options]
            with mock.patch.object(sys, "argv", line), mock.patch("os.getloadavg", lambda: (load, 0, 0)), \
                    mock.patch.object(cpu_peers.compare, "run_qtrain", lambda v: result("qtrain", v, 300)), \
                    mock.patch.object(cpu_peers.compare, "run_trl",
                                      lambda v: result(v.dtype, v, 150 if v.dtype == "bfloat16" else float32)), \
                    contextlib.redirect_stderr(io.StringIO()):
                cpu_peers.main()
            return json.loads(output.read_text()), ran

    def test_every_case_runs_once_a_round_with_each_peer(self):
        results, ran = self.measure("--rounds", "2")
        self.assertEqual(len(ran), 2 * 4 * 3)
        self.assertEqual(ran[:12], ran[:11:-1])  # the second round in reverse
        self.assertEqual([name for name, *_ in ran[:3]], ["float32", "bfloat16", "qtrain"])
        self.assertEqual({isa for _, _, keys, isa in ran if "bf16=true" in keys}, {""})
        self.assertEqual({isa for _, _, keys, isa in ran if not keys}, {"avx2"})
        self.assertNotIn("QTRAIN_CPU_ISA", os.environ)
        self.assertEqual([len(c["qtrain"]["runs"]) for c in results["cases"]], [2] * 4)

    def test_dtype_that_is_far_behind_runs_once(self):
        results, ran = self.measure("--rounds", "3", float32=100)
        self.assertEqual([name for name, *_ in ran].count("float32"), 4)
        for case in results["cases"]:
            self.assertEqual([len(case["trl"][dtype]["runs"]) for dtype in ("float32", "bfloat16")], [1, 3])

    def test_results_hold_what_the_readme_says(self):
        results, _ = self.measure("--rounds", "1")
        self.assertEqual({c["faster_trl_dtype"] for c in results["cases"]}, {"bfloat16"})
        self.assertIn("| LoRA, fastest dtype | 300 tokens/s | 150 tokens/s (bfloat16) | 2.0 |", bars.table(results))
        self.assertIn("**2.0 times", bars.claim(results))
        self.assertNotIn("/some/place", json.dumps(results))
        self.assertRegex(results["commit"], "^([0-9a-f]{8}|unknown)(-changed)?$")
        for key in ("processor", "threads", "versions", "command", "qtrain"):
            self.assertTrue(results[key], key)

    def test_refuses_a_busy_machine(self):
        with self.assertRaisesRegex(SystemExit, "load average is 0.90"):
            self.measure(load=0.9)
        results, _ = self.measure("--busy", "--rounds", "1", load=0.9)
        self.assertEqual(results["load_before"], 0.9)


if __name__ == "__main__":
    unittest.main()
