#!/usr/bin/env python3
"""scripts/gpu_suite.sh: its budgets fit into nine minutes, and each test of whole runs on a GPU is in one part.

    python3 tests/scripts/gpu_suite_test.py"""

import fnmatch
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "scripts/gpu_suite.sh"
LAST_SECOND = 525  # of a part, so that all end in nine minutes
BEFORE = 10        # seconds that pass before the first part, about: what the machine has is looked up


def listed():
    """The output of --list, as {first column: second column}."""
    text = subprocess.run([SUITE, "--list"], capture_output=True, text=True, check=True).stdout
    return {line.split("\t")[0]: line.split("\t")[1:] for line in text.splitlines()}


def matches(name, text):
    """Matches names against a filter like --gtest_filter."""
    wanted, _, unwanted = text.partition("-")
    has = lambda patterns: any(fnmatch.fnmatchcase(name, p) for p in patterns.split(":") if p)
    return has(wanted or "*") and not has(unwanted)


def sources():
    """The files of cuda_sources in tests/CMakeLists.txt that contain tests, and the headers of their fixtures."""
    return {p.name: p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests/e2e").glob("cuda_*"))
            if p.name.endswith((".h", "_test.cpp"))}


def tests():
    """{test name as GoogleTest prints it: its fixture}"""
    found = {}
    for text in sources().values():
        prefixes = {suite: prefix for prefix, suite in re.findall(r"INSTANTIATE_TEST_SUITE_P\(\s*(\w+),\s*(\w+)", text)}
        for kind, suite, name in re.findall(r"^TEST(_F|_P|)\((\w+),\s*(\w+)\)", text, re.M):
            found[f"{prefixes[suite]}/{suite}.{name}/0" if kind == "_P" else f"{suite}.{name}"] = suite
    return found


def fixtures_of_ranks():
    """CudaRanks and the classes derived from it."""
    bases = dict(pair for text in sources().values()
                 for pair in re.findall(r"^class (\w+) : public (?:::testing::)?(\w+)", text, re.M))
    has_ranks = lambda name: name == "CudaRanks" or (name in bases and has_ranks(bases[name]))
    return {name for name in bases if has_ranks(name)}


class GpuSuite(unittest.TestCase):
    def test_budgets_fit_into_nine_minutes(self):
        rows = listed()
        parts = {name: int(words[0]) for name, words in rows.items() if len(words) == 1 and words[0].isdigit()}
        planned = parts.pop("planned")
        self.assertEqual(sum(parts.values()), planned)
        self.assertLessEqual(planned + BEFORE, LAST_SECOND)
        self.assertIn(f"last_second={LAST_SECOND} ", SUITE.read_text(encoding="utf-8"))
        self.assertGreaterEqual(parts["test_ranks"], 55)

    def test_parts_that_are_asked_for_only(self):
        rare = {name for name, words in listed().items() if words[1:] == ["only if asked for"]}
        self.assertEqual(rare, {"step llama-3.1-8b", "step qwen3-8b-adamw8bit", "attribution qwen3-0.6b-qlora",
                                "attribution qwen3-8b-adamw8bit"})

    def test_tests_of_several_ranks_have_a_part_of_their_own(self):
        self.assertLessEqual({"CudaRanks", "CudaRanksOfStage", "CudaContext", "CudaGroups"}, fixtures_of_ranks())
        filters = {part: listed()[f"tests of {part}"][0] for part in ("test_e2e_cuda", "test_ranks")}
        self.assertGreater(len(tests()), 50)
        for name, suite in tests().items():
            part = "test_ranks" if suite in fixtures_of_ranks() else "test_e2e_cuda"
            with self.subTest(name=name):
                self.assertEqual([p for p, text in filters.items() if matches(name, text)], [part])

    def test_patterns_of_parts_are_looked_up(self):
        done = subprocess.run([SUITE, "--only", "steps", "--prebuilt", ROOT], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no part is called 'steps'", done.stderr)
        self.assertIn("'attribution qwen3-8b-adamw8bit'", done.stderr)


if __name__ == "__main__":
    unittest.main()
