#!/usr/bin/env python3
"""Runs a GoogleTest program in several processes, so that one fault does not end all tests.

    python3 gpu_tests.py --report tests.json --processes 4 --last '*Gemm*' -- build/gpu/bin/test_cuda --gtest_filter='*'

After a GPU error, nothing in the same process works any more: each process ends at its first failure, and a new one
continues with the next test. Tests that match --last run after all others. The report lists every test that ended, even if
this program is stopped: {tests, passed, skipped, failed: [names], not_run: [names]}. A process that ends with an error
although none of its tests failed counts as a failure too. Exits with 0 if all tests ran and nothing failed."""

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

STATES = {"[       OK ] ": "passed", "[  FAILED  ] ": "failed", "[  SKIPPED ] ": "skipped"}
RUNNING = "[ RUN      ] "


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", required=True)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--last", default="", help="a pattern of tests that run after all others")
    parser.add_argument("--cache", help="XDG_CACHE_HOME of the processes, each its own: CACHE.0, CACHE.1, ...")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def listed(command):
    """The names of all tests, from GoogleTest's list: suites, each followed by its tests, indented."""
    done = subprocess.run([*command, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True)
    names, suite = [], ""
    for line in done.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if not word or line.startswith("Running main"):
            continue
        if line.startswith(" "):
            names.append(suite + word.strip())
        else:
            suite = word
    return [n for n in names if "DISABLED_" not in n]


class Run:
    """The states of all tests so far, and the processes that are alive."""

    def __init__(self, args, names):
        self.args, self.names = args, names
        self.states, self.bad_ends, self.processes, self.stopped = {}, [], set(), False
        self.lock = threading.Lock()

    def in_one_process(self, names, environment):
        """Runs tests up to the first failure; returns how many of them ended or were cut off."""
        running, last, failed, before = None, "its start", False, len([n for n in names if n in self.states])
        with tempfile.NamedTemporaryFile("r", prefix="tests.", suffix=".log") as log:
            with self.lock:
                if self.stopped:
                    return 0
                with open(log.name, "w") as out:
                    process = subprocess.Popen([*self.args.command, "--gtest_fail_fast", "--gtest_filter=" + ":".join(names)],
                                               stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
                self.processes.add(process)
            status = process.wait()
            text = Path(log.name).read_text(errors="replace")
        with self.lock:
            self.processes.discard(process)
            self.stopped = self.stopped or status == -signal.SIGTERM  # sent to all of them
            for line in text.splitlines():
                if line.startswith(RUNNING):
                    running = line[len(RUNNING):]
                state = next((s for mark, s in STATES.items() if line.startswith(mark)), None)
                if state and running and line[13:].split(" ")[0].rstrip(",") == running:
                    self.states[running], last, running = state, running, None
                failed = failed or state == "failed"
                if failed:
                    break  # GoogleTest reports the rest as skipped
            if running and not self.stopped:
                self.states[running] = f"was cut off ({status})"
            elif status != 0 and not failed and not self.stopped:
                self.bad_ends.append(f"ended with {status} after {last}")
            sys.stdout.write(text)
            sys.stdout.flush()
        return len([n for n in names if n in self.states]) - before

    def shard(self, names, number):
        environment = dict(os.environ)
        if self.args.cache:
            environment["XDG_CACHE_HOME"] = f"{self.args.cache}.{number}"
        while names and self.in_one_process(names, environment):
            names = [n for n in names if n not in self.states]

    def all_shards(self, names):
        shards = [names[i::self.args.processes] for i in range(self.args.processes)]
        threads = [threading.Thread(target=self.shard, args=(s, i)) for i, s in enumerate(shards) if s]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in self.processes:
                process.kill()

    def report(self):
        of = lambda state: [n for n in self.names if self.states.get(n) == state]
        others = [f"{n} {s}" for n, s in self.states.items() if s.startswith("was cut off")]
        return dict(tests=len(self.names), passed=len(of("passed")), skipped=len(of("skipped")),
                    failed=of("failed") + others + self.bad_ends,
                    not_run=[n for n in self.names if n not in self.states])


def main():
    args = parse()
    names = listed(args.command)
    last = [n for n in names if args.last and any(fnmatch.fnmatchcase(n, p) for p in args.last.split(":"))]
    run = Run(args, names)

    def work():
        run.all_shards([n for n in names if n not in last])
        run.all_shards(last)
    worker = threading.Thread(target=work)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=run.stop).start())
    worker.start()
    worker.join()
    report = run.report()
    Path(args.report).write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(bool(report["failed"] or report["not_run"] or not names))


if __name__ == "__main__":
    main()
