#!/usr/bin/env python3
"""What every kernel takes of a multiprocessor: compiles kernels/cuda/*.cu and holds the compiler's report against
kernels/cuda/kernel_resources.csv.

    scripts/kernel_resources.py --check [--arch 90a]     # ends with 1 on a spill, a warning or another table
    scripts/kernel_resources.py --check --arch 90a --build_log build/gpu/build.log
    scripts/kernel_resources.py --write                  # the architectures of the table; writes it

Without --arch a check compiles for every architecture of a release; the table has some of them. What a build for the one
architecture has compiled (scripts/gpu_prebuild.sh) is taken from its log. Needs nvcc and c++filt.
Registers depend on the compiler: with another nvcc than the table's only spills and warnings count. Shared memory that
is asked for at launch is not in the compiler's report.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "kernels/cuda/kernel_resources.csv"
ARCHITECTURES = ("75", "80", "86", "89", "90a", "100", "120")  # as QTRAIN_CUDA_ARCHS=all (cmake/cuda.cmake)
IN_TABLE = ("80", "90a", "120")
COLUMNS = ("source", "kernel", "arch", "registers", "static_shared", "stack", "spill_stores", "spill_loads")
FLAGS = ("-std=c++20", "-O3", "-DNDEBUG", "-DQTRAIN_HAS_CUDA=1", "-I.", "-Ikernels/cuda/native",
         "--expt-relaxed-constexpr", "--diag-suppress=554", "-lineinfo", "-Xptxas=-v", "-cubin")
# (kernel, arch): why its spills cannot be avoided.
ALLOWED_SPILLS = {
    **{(f"rms_norm_rows_grad<{t}, 1>", arch): "for rows that packs do not divide; 1,024 threads leave 64 registers"
       for t in ("float", "F16", "Bf16") for arch in ("75", "86", "89")},
    **{(f"attention_rows<{t}, (Scores){s}>", arch): "4 to 12 bytes, where tensor cores are not used"
       for t in ("float", "F16") for s in (0, 1) for arch in ("86", "89")}}

REPORT = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)' for 'sm_\w+'\n"
    r"(?:ptxas info +: (?!Compiling|Function properties).*\n)*"
    r"ptxas info +: Function properties for (?P=kernel)\n"
    r" +(?P<stack>\d+) bytes stack frame, (?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads\n"
    r"ptxas info +: Used (?P<registers>\d+) registers(?P<rest>.*)")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--write", action="store_true")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="only this one; may be repeated")
    parser.add_argument("--build_log", type=Path, help="of a native build for the one --arch, with -Xptxas=-v")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.build_log and len(args.arch or ()) != 1:
        parser.error("--build_log is of one --arch")
    if args.write and args.arch:
        parser.error("--write takes all architectures of the table")
    return args


def find_nvcc():
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not found:
        sys.exit("nvcc is not installed")
    return found


def version_of(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V(\d+\.\d+\.\d+)", text)[1]


def short_names(mangled):
    """rms_norm_rows<float, 4> for the symbol of a kernel."""
    plain = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    names = {}
    for symbol, name in zip(mangled, plain.splitlines()):
        depth = 0
        name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
        for at, letter in enumerate(name):  # the parameters: the first parenthesis outside of <>
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0:
                name = name[:at]
                break
        names[symbol] = re.sub(r"\(([\w ]+)\)(?=\d)", "", name).replace("qtrain::ops::", "").replace("qtrain::", "")
    return names


def reports_of(build_log, sources):
    """What the compiler said of each source that a build has compiled without an error."""
    reports = {}
    if not build_log or not build_log.exists():
        return reports
    for part in re.split(r"(?m)^(?=\[\d+/\d+\] )", build_log.read_text(encoding="utf-8", errors="replace")):
        head, _, said = part.partition("\n")
        built = re.search(r"Building CUDA object kernels/.*/cuda/(\w+)\.cu\.o$", head)
        source = next((s for s in sources if built and s.stem == built[1]), None)
        if source and "FAILED:" not in part and build_log.stat().st_mtime >= source.stat().st_mtime:
            reports[source] = said
    return reports


def compile_source(nvcc, source, arch, folder):
    """The rows of one file, and what the compiler complained about."""
    out = Path(folder) / f"{source.stem}.{arch}.cubin"
    command = [nvcc, *FLAGS, f"-arch=sm_{arch}", str(source.relative_to(ROOT)), "-o", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode:
        return [], [f"{source.name} for sm_{arch} does not compile:\n{text}"]
    return read_report(text, source, arch)


def read_report(text, source, arch):
    """The same from what the compiler said."""
    complaints = [f"{source.name} for sm_{arch}: {line}" for line in text.splitlines() if "warning" in line.lower()]
    found = list(REPORT.finditer(text))
    if len(found) != text.count("Compiling entry function"):
        complaints.append(f"{source.name} for sm_{arch}: the compiler's report has an unknown form")
    names = short_names([m["kernel"] for m in found]) if found else {}
    rows = []
    for m in found:
        shared = re.search(r"(\d+) bytes smem", m["rest"])
        rows.append((source.stem, names[m["kernel"]], arch, m["registers"], shared[1] if shared else "0", m["stack"],
                     m["spill_stores"], m["spill_loads"]))
    return rows, complaints


def compile_all(nvcc, architectures, jobs, build_log=None):
    sources = sorted((ROOT / "kernels/cuda").glob("*.cu"), key=lambda f: -f.stat().st_size)
    reports = reports_of(build_log, sources)
    if build_log:
        print(f"{len(reports)} of {len(sources)} sources are taken from {build_log}")
    rows, complaints = [], []
    for source, text in reports.items():
        more, said = read_report(text, source, architectures[0])
        rows += more
        complaints += said
    sources = [s for s in sources if s not in reports]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        tasks = [pool.submit(compile_source, nvcc, s, a, folder) for a in architectures for s in sources]
        for task in tasks:
            more, said = task.result()
            rows += more
            complaints += said
    return sorted(rows, key=lambda r: (r[0], r[1], ARCHITECTURES.index(r[2]))), complaints


def spills(rows):
    return [f"{r[1]} on sm_{r[2]} spills: {r[6]} bytes stored, {r[7]} bytes loaded" for r in rows
            if (r[6], r[7]) != ("0", "0") and (r[1], r[2]) not in ALLOWED_SPILLS]


def read_table():
    """(version of nvcc, rows)"""
    with open(TABLE, encoding="utf-8", newline="") as file:
        version = file.readline().removeprefix("# nvcc ").strip()
        return version, [tuple(row) for row in csv.reader(file)][1:]


def write_table(version, rows):
    with open(TABLE, "w", encoding="utf-8", newline="") as file:
        file.write(f"# nvcc {version}\n")
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def differences(rows, architectures):
    _, known = read_table()
    known = {row for row in known if row[2] in architectures}
    new = {row for row in rows if row[2] in IN_TABLE}
    show = lambda row: ", ".join(f"{c} {v}" for c, v in zip(COLUMNS, row))
    return ([f"not in the table: {show(r)}" for r in sorted(new - known)] +
            [f"only in the table: {show(r)}" for r in sorted(known - new)])


def main():
    args = parse()
    nvcc = find_nvcc()
    version, architectures = version_of(nvcc), tuple(args.arch or (IN_TABLE if args.write else ARCHITECTURES))
    rows, problems = compile_all(nvcc, architectures, args.jobs, args.build_log)
    problems += spills(rows)
    if args.write and not problems:
        write_table(version, rows)
    if args.check and version == read_table()[0]:
        problems += [p + " (scripts/kernel_resources.py --write)" for p in differences(rows, architectures)]
    elif args.check:
        print(f"the table is of nvcc {read_table()[0]}, this is {version}: registers are not compared")
    for problem in problems:
        print(problem)
    names = ", ".join("sm_" + a for a in architectures)
    print(f"{len(rows)} kernels for {names} with nvcc {version}: {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
