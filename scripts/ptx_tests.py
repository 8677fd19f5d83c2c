#!/usr/bin/env python3
"""Runs the tests of CUDA kernels on code from nvcc: compiles the kernels of the program and of the tests to PTX, which the
execution harness then executes instead of code from the C++ compiler (docs/kernels.md).

    scripts/ptx_tests.py [--all] [--arch 90a] [--bin build/emulated/bin] [--folder build/ptx] [--kept FOLDER] [--jobs N]
    scripts/ptx_tests.py --write_counts

Needs nvcc and a build of the preset `emulated` with its tests, but no GPU. Exits with 1 if a test fails. Without --all,
every op runs once in each type, and every instruction of kernels/cuda/native/target/ptx.cuh runs in all thread orders; the
other tests take minutes. With --kept, the PTX that a build for the same architecture has left (scripts/gpu_prebuild.sh
--quick) is not compiled again, unless a source or header is newer. With --arch 75, only the ops that such GPUs support are run.

--write_counts runs no tests. It writes what kernels execute to bench/baselines/cuda_counts.csv and docs/kernels/counts.md,
and the times that follow from it (scripts/predict_times.py).
"""

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import predict_times
from kernel_resources import FLAGS, ROOT, find_nvcc

TEST_SOURCES = ("tests/cuda/*.cu", "tests/emulator/*.cu")
PTX_FLAGS = [flag for flag in FLAGS if flag not in ("-cubin", "-Xptxas=-v")] + ["-ptx"]
QUICK = {"test_cuda": "Ptx.*:All/CudaOp.FollowsDouble/*:All/CudaUpdate.*",
         "test_harness": "All/Harness.*:KernelCounts.*"}
# Tests that need no instructions of later GPUs.
OLD = {"test_cuda": "All/CudaOpOnOlderDevice.*:-*/attention_wide_heads"}
# NCCL tests start other programs, which have different kernels or none.
ALL = {"test_cuda": "*:-NcclRanks.*", "test_harness": "All/Harness.*:KernelCounts.*"}
COUNTS = {"test_harness": "KernelCounts.DoNotGrowBeyondTheBaseline"}


def sources_of(root, patterns=("kernels/cuda/*.cu", *TEST_SOURCES)):
    found = [path for pattern in patterns for path in root.glob(pattern)]
    return sorted(found, key=lambda path: -path.stat().st_size)


def take_kept(folder, sources, kept, root=ROOT):
    """Copies the PTX of sources from the folder `kept`, if it is newer than all code; returns the other sources."""
    code = [path for top in ("kernels", "core", "emulator", "tests") for path in (root / top).rglob("*.*")
            if path.suffix in (".cu", ".cuh", ".h")]
    newest = max((path.stat().st_mtime for path in code), default=0)
    left = []
    for source in sources:
        ptx = kept / f"{source.stem}.ptx"
        if ptx.exists() and ptx.stat().st_mtime > newest:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(ptx, folder)
        else:
            left.append(source)
    return left


def compile_to(folder, sources, arch, jobs, root=ROOT):
    """Writes folder/NAME.ptx for each source; returns the compiler's output for sources that do not compile."""
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = find_nvcc()

    def compiled(source):
        command = [nvcc, *PTX_FLAGS, f"-arch=compute_{arch}", str(source.relative_to(root)), "-o",
                   str(folder / f"{source.stem}.ptx")]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode else ""

    with ThreadPoolExecutor(jobs) as pool:
        return [said for said in pool.map(compiled, sources) if said]


def capability_of(arch):
    return int(arch.rstrip("a"))


def tests_of(args):
    if args.write_counts:
        return COUNTS
    return OLD if args.arch == "75" else ALL if args.all else QUICK


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--arch", default="90a")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/emulated/bin")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/ptx")
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--write_counts", action="store_true")
    args = parser.parse_args()
    folder = args.folder.resolve() / args.arch
    for left in folder.glob("*.ptx"):
        left.unlink()
    sources = sources_of(ROOT)
    if args.kept:
        left = take_kept(folder, sources, args.kept)
        print(f"the PTX of {len(sources) - len(left)} of {len(sources)} sources is taken from {args.kept}")
        sources = left
    if said := compile_to(folder, sources, args.arch, args.jobs):
        sys.exit("\n".join(said))
    environment = dict(os.environ, QTRAIN_EMULATION=f"ptx={folder},capability={capability_of(args.arch)}")
    if args.write_counts:
        environment["QTRAIN_WRITE_COUNTS"] = "1"
    failed = 0
    for program, chosen in tests_of(args).items():
        command = [str(args.bin / program), f"--gtest_filter={chosen}", "--gtest_brief=1"]
        failed |= subprocess.run(command, cwd=ROOT, env=environment).returncode
    if args.write_counts and not failed:
        predict_times.write()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
