#!/usr/bin/env python3
"""Compiles kernels/cuda/*.cu and compares the registers, shared memory and stack of every kernel, as the compiler reports
them, with kernels/cuda/kernel_resources.csv.

    scripts/kernel_resources.py --check [--arch 90a]     # exits with 1 for spills, warnings and differences
    scripts/kernel_resources.py --check --arch 90a --build_log build/gpu/build.log
    scripts/kernel_resources.py --write                  # compiles for the table's architectures and writes it

Without --arch, --check compiles for every architecture of a release; the table has only some of them. With --build_log, the
reports of sources that a build for one architecture has compiled (scripts/gpu_prebuild.sh) are taken from its log. Needs
nvcc and c++filt. Register counts depend on the compiler: if the version of nvcc differs from the table's, only spills and
warnings count. The report does not include shared memory that is requested at launch.
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
FLAGS = ("-std=c++20", "-O3", "-DNDEBUG", "-DQTRAIN_HAS_CUDA=1", "-DQTRAIN_HAS_SM_90A=1", "-I.", "-Ikernels/cuda/native",
         "--expt-relaxed-constexpr", "--diag-suppress=554", "-lineinfo", "-Xptxas=-v", "-cubin")
# (kernel, arch): why its spills are unavoidable.
ALLOWED_SPILLS = {
    **{(f"rms_norm_rows_grad<{t}, 1, 8, {sums}>", arch):
       "for rows that packs do not divide: 1,024 threads leave only 64 registers"
       for t in ("float", "F16", "Bf16") for sums in ("false", "true") for arch in ("75", "86", "89")},
    ("rope_heads_grad<Bf16, 1>", "120"): "8 bytes, for heads that packs do not divide",
    ("normed_rope_heads_grad<F16, 8, true>", "120"): "4 bytes, only if norms of heads are trained in float16",
    **{(f"attention_rows<{t}, (Scores){s}>", arch): "4 to 12 bytes, in a kernel that runs only without tensor cores"
       for t in ("float", "F16") for s in (0, 1) for arch in ("86", "89")}}

REPORT = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)' for 'sm_\w+'\n"
    r"(?:ptxas info +: (?!Compiling|Function properties).*\n)*"
    r"ptxas info +: Function properties for (?P=kernel)\n"
    r" +(?P<stack>\d+) bytes stack frame, (?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads\n"
    r"ptxas info +: Used (?P<registers>\d+) registers(?P<rest>.*)")

# The assembler reports if it adds waits between products of wgmma, or executes them one after another.
COMPLAINT = re.compile(r"warning|Performance Loss|warpgroup\.\w+ is injected|wgmma.* serialized", re.IGNORECASE)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--write", action="store_true")
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES, help="compile for this architecture only; may be repeated")
    parser.add_argument("--build_log", type=Path, help="log of a native build for the single --arch, made with -Xptxas=-v")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.build_log and len(args.arch or ()) != 1:
        parser.error("--build_log requires exactly one --arch")
    if args.write and args.arch:
        parser.error("--write always compiles for all architectures of the table")
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
    """Readable names of kernel symbols, such as rms_norm_rows<float, 4>."""
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
    """The compiler's output for each source that a build compiled without errors."""
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
    """The rows of one source file, and the compiler's complaints."""
    out = Path(folder) / f"{source.stem}.{arch}.cubin"
    command = [nvcc, *FLAGS, f"-arch=sm_{arch}", str(source.relative_to(ROOT)), "-o", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode:
        return [], [f"{source.name} for sm_{arch} does not compile:\n{text}"]
    return read_report(text, source, arch)


def read_report(text, source, arch):
    """The same, parsed from the compiler's output."""
    complaints = [f"{source.name} for sm_{arch}: {line}" for line in text.splitlines() if COMPLAINT.search(line)]
    found = list(REPORT.finditer(text))
    if len(found) != text.count("Compiling entry function"):
        complaints.append(f"{source.name} for sm_{arch}: the compiler's report could not be parsed")
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
        print(f"the reports of {len(reports)} of {len(sources)} sources are taken from {build_log}")
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


def cell_of(values):
    """Text for registers, stack, and spills: "40", or "40 stack=16" if more than registers is used."""
    named = zip(("stack", "spill_stores", "spill_loads"), values[1:])
    return " ".join([values[0], *(f"{name}={value}" for name, value in named if value != "0")])


def values_of(cell):
    registers, *others = cell.split()
    named = dict(other.split("=") for other in others)
    return registers, *(named.get(name, "0") for name in ("stack", "spill_stores", "spill_loads"))


def table_of(rows):
    """Lines for the table: the name of a source, then one line for each of its kernels with a cell for each
    architecture. A kernel has more lines if its shared memory differs between architectures, or if another kernel of
    the source has the same name."""
    kernels = {}
    for source, kernel, arch, registers, shared, *others in rows:
        twins = kernels.setdefault((source, kernel, shared), [])
        cells = next((c for c in twins if arch not in c), None)
        if cells is None:
            twins.append(cells := {})
        cells[arch] = cell_of((registers, *others))
    lines, last = [["kernel", "static_shared", *IN_TABLE]], None
    for (source, kernel, shared), twins in kernels.items():
        if source != last:
            lines.append([f"{source}.cu"])
            last = source
        lines += [[kernel, shared, *(cells.get(arch, "") for arch in IN_TABLE)] for cells in twins]
    return lines


def rows_of(lines):
    """The opposite of table_of."""
    rows, source, (_, _, *architectures) = [], None, lines[0]
    for kernel, *cells in lines[1:]:
        if not cells:
            source = kernel.removesuffix(".cu")
        for arch, cell in zip(architectures, cells[1:]):
            if cell:
                registers, *others = values_of(cell)
                rows.append((source, kernel, arch, registers, cells[0], *others))
    return rows


def read_table():
    """(version of nvcc, rows)"""
    with open(TABLE, encoding="utf-8", newline="") as file:
        version = file.readline().removeprefix("# nvcc ").strip()
        return version, rows_of(list(csv.reader(file)))


def write_table(version, rows):
    with open(TABLE, "w", encoding="utf-8", newline="") as file:
        file.write(f"# nvcc {version}\n")
        csv.writer(file, lineterminator="\n").writerows(table_of(rows))


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
        print(f"the table was made with nvcc {read_table()[0]}, not {version}: registers are not compared")
    for problem in problems:
        print(problem)
    names = ", ".join("sm_" + a for a in architectures)
    print(f"{len(rows)} kernels for {names} with nvcc {version}: {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
