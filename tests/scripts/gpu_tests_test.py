#!/usr/bin/env python3
"""scripts/gpu_tests.py on a program that behaves like one of GoogleTest's, and fails, crashes or hangs where it is told to.

    python3 tests/scripts/gpu_tests_test.py"""

import json
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

RUNNER = Path(__file__).resolve().parents[2] / "scripts/gpu_tests.py"
PROGRAM = """#!PYTHON
import os, signal, sys, time
TESTS = NAMES  # name: how it ends
if "--gtest_list_tests" in sys.argv:
    print("Suite.")
    for name in TESTS:
        print("  " + name)
    sys.exit(0)
chosen = [a.split("=")[1].split(":") for a in sys.argv if a.startswith("--gtest_filter=")][-1]
status = 0
for name, end in TESTS.items():
    if "Suite." + name not in chosen:
        continue
    print("[ RUN      ] Suite." + name, flush=True)
    if end == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "hang":
        time.sleep(60)
    word = "[  FAILED  ]" if end == "fail" else "[  SKIPPED ]" if end == "skip" else "[       OK ]"
    print(f"{word} Suite.{name} (0 ms)", flush=True)
    if end == "fail":
        sys.exit(1)
    if end == "exit code 9":
        status = 9
    if end == "crash behind it":
        os.kill(os.getpid(), signal.SIGABRT)
sys.exit(status)
"""


class GpuTests(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.report = Path(self.folder.name) / "report.json"
        self.addCleanup(self.folder.cleanup)

    def command(self, tests, processes):
        program = Path(self.folder.name) / "program"
        program.write_text(PROGRAM.replace("PYTHON", sys.executable).replace("NAMES", repr(tests)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return [sys.executable, RUNNER, "--report", self.report, "--processes", str(processes), "--", program]

    def run_tests(self, tests, processes=1):
        """Returns the exit status and the report."""
        done = subprocess.run(self.command(tests, processes), stdout=subprocess.DEVNULL, timeout=60)
        return done.returncode, json.loads(self.report.read_text())

    def test_all_pass(self):
        status, report = self.run_tests(dict(a="pass", b="skip", c="pass"), processes=2)
        self.assertEqual(status, 0)
        self.assertEqual(report, dict(tests=3, passed=2, skipped=1, failed=[], not_run=[]))

    def test_others_go_on_behind_a_failure(self):
        status, report = self.run_tests(dict(a="pass", b="fail", c="pass", d="pass"))
        self.assertEqual(status, 1)
        self.assertEqual(report, dict(tests=4, passed=3, skipped=0, failed=["Suite.b"], not_run=[]))

    def test_others_go_on_behind_a_crash(self):
        status, report = self.run_tests(dict(a="pass", b="crash", c="pass"))
        self.assertEqual(status, 1)
        self.assertEqual(report, dict(tests=3, passed=2, skipped=0, failed=["Suite.b was cut off (-11)"], not_run=[]))

    def test_a_bad_end_is_a_failure(self):
        status, report = self.run_tests({"a": "pass", "b": "exit code 9", "c": "pass"})
        self.assertEqual(status, 1)
        self.assertEqual(report, dict(tests=3, passed=3, skipped=0, failed=["ended with 9 after Suite.c"], not_run=[]))

    def test_a_crash_between_tests_is_a_failure(self):
        status, report = self.run_tests({"a": "pass", "b": "crash behind it", "c": "pass"})
        self.assertEqual(status, 1)
        self.assertEqual(report, dict(tests=3, passed=3, skipped=0, failed=["ended with -6 after Suite.b"], not_run=[]))

    def test_what_is_stopped_leaves_its_report(self):
        process = subprocess.Popen(self.command(dict(a="pass", b="hang", c="pass"), 1), stdout=subprocess.DEVNULL)
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 1)
        report = json.loads(self.report.read_text())
        self.assertEqual(report, dict(tests=3, passed=1, skipped=0, failed=[], not_run=["Suite.b", "Suite.c"]))


if __name__ == "__main__":
    unittest.main()
