#!/usr/bin/env python3
"""Plants the mistakes of tests/mutants/*.txt one at a time and tells whether the tests that should see them do.

Usage: tests/mutants/run.py [--check] [--only PATTERN ...] [--jobs N] [--folder DIR]
  --check    only compare the lists with the sources: every original text has to be there exactly once
  --only     only mutants whose name contains one of the patterns
  --jobs     tests and compilers that run at the same time (default: one per processor)
  --folder   where the copy of the sources is built (default: build/mutants)

One build holds all mistakes, each behind a switch that the environment variable QTRAIN_MUTANT sets; those of kind
`build` are compiled one by one, those of kind `ptx` by nvcc, whose code the execution harness then runs. The last line is
"N mutants: N killed, N survived"; exit code 1 unless all were killed.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

LISTS = pathlib.Path(__file__).resolve().parent
ROOT = LISTS.parent.parent
sys.path.append(str(ROOT / "scripts"))
ALONE = ("build", "ptx")  # kinds that are not chosen while the program runs
# The kernels that the tests of mutants of kind `ptx` launch, by program.
PTX_SOURCES = {"test_cuda": ("tests/cuda/*.cu",),
               "test_harness": ("kernels/cuda/attention*.cu", "kernels/cuda/grouped_gemm*.cu")}
SWITCH = """#pragma once
#include <cstdlib>
/// The mutant that is on; 0: none.
inline const int kMutantOn = [] {
  const char* number = std::getenv("QTRAIN_MUTANT");
  return number ? std::atoi(number) : 0;
}();
inline bool mutant_is(int number) { return kMutantOn == number; }
"""
LONGEST = 600  # seconds; a test that does not end has seen the mistake too


@dataclass
class Mutant:
    name: str
    number: int
    place: str  # of the entry: file and line
    file: str = ""
    kind: str = "expression"
    after: str = ""
    why: str = ""
    tests: list = field(default_factory=list)  # (program, filter)
    original: str = ""
    mutated: str = ""

    def found_in(self, text):
        """The position at which the original text begins."""
        begin = 0
        if self.kind == "expression" and re.match(r"(if|for|while|return)\b|.*;$", self.original.strip(), re.DOTALL):
            raise ValueError(f"{self.place}: not an expression, so it needs \"kind: statement\" or \"kind: build\"")
        if self.after:
            if text.count(self.after) != 1:
                raise ValueError(f"{self.place}: {self.file} has the text of `after` {text.count(self.after)} times")
            begin = text.index(self.after) + len(self.after)
        elif text.count(self.original) != 1:
            raise ValueError(f"{self.place}: {self.file} has the original text {text.count(self.original)} times")
        if self.original not in text[begin:]:
            raise ValueError(f"{self.place}: {self.file} does not have the original text there")
        return text.index(self.original, begin)


def fail(message):
    sys.exit(f"error: {message}")


def read_list(path, mutants):
    """Parses the lists; docs/development.md describes their entries."""
    current = None
    for number, line in enumerate(path.read_text().split("\n"), 1):
        place = f"{path.name}:{number}"
        if line.startswith("["):
            current = Mutant(f"{path.stem}/{line.strip('[]')}", len(mutants) + 1, place)
            mutants.append(current)
        elif line.startswith(("- ", "+ ")) or line in ("-", "+"):
            name = "original" if line.startswith("-") else "mutated"
            before = getattr(current, name)
            setattr(current, name, (before + "\n" if before else "") + line[2:])
        elif line and not line.startswith("#"):
            key, _, value = line.partition(":")
            if key == "tests":
                current.tests.append(tuple(value.split(maxsplit=1)))
            elif key in ("file", "kind", "after", "why"):
                setattr(current, key, value.strip())
            else:
                fail(f"{place}: what is \"{line}\"?")


def read_lists():
    mutants = []
    for path in sorted(LISTS.glob("*.txt")):
        read_list(path, mutants)
    wrong = []
    for mutant in mutants:
        try:
            mutant.found_in((ROOT / mutant.file).read_text())
        except (OSError, ValueError) as e:
            wrong.append(str(e))
    if wrong:
        fail("these mutants do not fit the sources:\n" + "\n".join(wrong))
    return mutants


def switched(mutants, original):
    """The original text and its replacement, one of which is chosen at run time."""
    if mutants[0].kind == "expression":
        return "(" + "".join(f"mutant_is({m.number}) ? ({m.mutated}) : " for m in mutants) + f"({original}))"
    chain = "".join(f"if (mutant_is({m.number})) {{ {m.mutated} }} else " for m in mutants)
    return "{ " + chain + "{ " + original + " } }"


def planted(text, mutants):
    sites = {}
    for mutant in mutants:
        begin = mutant.found_in(text)
        sites.setdefault((begin, begin + len(mutant.original)), []).append(mutant)
    end = len(text)
    for (begin, stop), here in sorted(sites.items(), reverse=True):
        if stop > end:
            fail(f"{here[0].place}: overlaps another mutant of {here[0].file}; give both the same original text")
        text = text[:begin] + switched(here, text[begin:stop]) + text[stop:]
        end = begin
    include = '#include "core/mutant_switch.h"\n'
    guard = "#pragma once\n"
    return guard + include + text[len(guard):] if text.startswith(guard) else include + text


def write_if_changed(path, content):
    """Keeps the modification time of a file whose contents stay the same, so that it is not recompiled."""
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def copy_tree(tree, mutants):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split("\n") if listed.returncode == 0 else [
        str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts]
    names = [name for name in names if name and (ROOT / name).is_file()]
    by_file = {}
    for mutant in mutants:
        if mutant.kind not in ALONE:
            by_file.setdefault(mutant.file, []).append(mutant)
    for name in names:
        content = (ROOT / name).read_bytes()
        if name in by_file:
            content = planted(content.decode(), by_file[name]).encode()
        write_if_changed(tree / name, content)
        shutil.copymode(ROOT / name, tree / name)
    write_if_changed(tree / "core/mutant_switch.h", SWITCH.encode())
    known = set(names) | {"core/mutant_switch.h"}
    for path in tree.rglob("*"):
        name = path.relative_to(tree)
        if path.is_file() and name.parts[0] != "build" and str(name) not in known:
            path.unlink()


def run(command, folder):
    print("$ " + " ".join(command), flush=True)
    if subprocess.run(command, cwd=folder).returncode != 0:
        fail("the build with all mutants failed")


def build(tree, mutants, jobs):
    targets = sorted({program for m in mutants for program, _ in m.tests})
    command = ["cmake", "--preset", "emulated", "-DQTRAIN_UNITY=OFF"]
    if shutil.which("ccache"):
        command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run(command, tree)
    run(["cmake", "--build", "--preset", "emulated", "-j", str(jobs), "--target"] + targets, tree)
    if any(m.kind == "ptx" for m in mutants):
        from ptx_tests import compile_to, sources_of
        patterns = [p for program in targets for p in PTX_SOURCES.get(program, ())]
        if said := compile_to(tree / "build/ptx", sources_of(tree, patterns), "90a", jobs, tree):
            fail("nvcc does not compile the mutants:\n" + "\n".join(said))


def result_of(tree, mutant, number):
    """Returns "killed", "survived" or "skipped", and the output of a test."""
    said, ran = "", 0
    environment = dict(os.environ, QTRAIN_MUTANT=str(number))
    if mutant.kind == "ptx":
        environment["QTRAIN_EMULATION"] = f"ptx={tree}/build/ptx"
    for program, chosen in mutant.tests:
        command = [str(tree / "build/emulated/bin" / program), f"--gtest_filter={chosen}", "--gtest_brief=1"]
        try:
            done = subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            return "killed", "it does not end"
        said = done.stdout.decode(errors="replace")
        if "] 0 tests from" in said:
            fail(f"{mutant.name}: {program} has no test {chosen}")
        if done.returncode != 0:
            return "killed", said
        passed = re.search(r"\[  PASSED  \] (\d+)", said)
        ran += int(passed.group(1)) if passed else 0
    return ("survived" if ran else "skipped"), said


def check_without(tree, mutants, jobs):
    """Checks that without a mutant every named test passes. Returns the tests that do not run here."""
    wanted = {(m.kind == "ptx", *m.tests): m for m in mutants}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda m: result_of(tree, m, 0), wanted.values()))
    for mutant, (verdict, said) in zip(wanted.values(), results):
        if verdict == "killed":
            fail(f"the tests of {mutant.name} fail without a mutant:\n{said}")
    return {tuple(m.tests) for m, (verdict, _) in zip(wanted.values(), results) if verdict == "skipped"}


def timed(work):
    begin = time.monotonic()
    verdict, said = work()
    return verdict, said, time.monotonic() - begin


def alone(tree, mutant, jobs):
    """For kinds in ALONE: compiles the mistake in place of the original, and then restores the original."""
    file = tree / mutant.file
    text = file.read_text()
    at = mutant.found_in(text)
    file.write_text(text[:at] + mutant.mutated + text[at + len(mutant.original):])
    try:
        build(tree, [mutant], jobs)
        return result_of(tree, mutant, 0)
    finally:
        file.write_text(text)


def verdicts(tree, mutants, jobs):
    """Yields (mutant, (verdict, output, seconds)), beginning with those that share one build."""
    switches = [m for m in mutants if m.kind not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from zip(switches, pool.map(lambda m: timed(lambda: result_of(tree, m, m.number)), switches))
    for mutant in mutants:
        if mutant.kind in ALONE:
            yield mutant, timed(lambda: alone(tree, mutant, jobs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mutants")
    arguments = parser.parse_args()
    mutants = read_lists()
    chosen = [m for m in mutants if any(pattern in m.name for pattern in arguments.only)]
    if arguments.check:
        return print(f"{len(mutants)} mutants fit the sources")
    tree = arguments.folder.resolve() / "tree"
    copy_tree(tree, mutants)
    build(tree, chosen, arguments.jobs)
    absent = check_without(tree, chosen, arguments.jobs)
    for mutant in chosen:
        if tuple(mutant.tests) in absent:
            print(f"skipped             {mutant.name}: its tests do not run here", flush=True)
    chosen = [m for m in chosen if tuple(m.tests) not in absent]
    survived = 0
    for mutant, (verdict, said, seconds) in verdicts(tree, chosen, arguments.jobs):
        survived += verdict != "killed"
        print(f"{verdict:<9} {seconds:6.1f} s  {mutant.name}: {mutant.why}", flush=True)
        if verdict == "skipped":
            print(said[-2000:], flush=True)
    print(f"{len(chosen)} mutants: {len(chosen) - survived} killed, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
