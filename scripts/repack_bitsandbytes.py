#!/usr/bin/env python3
"""Repacks bitsandbytes into a small archive for a machine that has PyTorch, but neither bitsandbytes nor a network.

    scripts/repack_bitsandbytes.py peers.tar.xz                 # then: scripts/gpu_suite.sh --peers peers.tar.xz
    scripts/repack_bitsandbytes.py DIR --cuda 12.8              # a folder for PYTHONPATH

The wheel on PyPI has libraries for every version of CUDA. This script keeps the one for --cuda, which should be the
version of the machine's PyTorch (torch.version.cuda), and the small CPU library, without which the result cannot be tested
here. Pure Python dependencies are included, except those that PyTorch brings. The folder looks like an installation, with a
RECORD of the files that were kept. Wheels are downloaded by pip, or taken from --wheels."""

import argparse
import base64
import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

LIBRARY = re.compile(r"bitsandbytes/libbitsandbytes_(cpu|cuda(\d+)|.*)\.so")
THERE = {"torch", "numpy"}  # with PyTorch


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="a .tar.xz file, or a folder, which is replaced")
    parser.add_argument("--cuda", default="13.0", help="CUDA version of that machine's PyTorch")
    parser.add_argument("--version", help="version of bitsandbytes; default: the newest")
    parser.add_argument("--python-version", default="3.12", help="version of that machine's Python")
    parser.add_argument("--platform", default="manylinux_2_24_x86_64", help="pip's name for that machine's platform")
    parser.add_argument("--wheels", type=Path, help="use the wheels in this folder instead of downloading them")
    parser.add_argument("--strip", action="store_true", help="run strip on the libraries to remove unneeded symbols")
    return parser.parse_args()


def download(args, folder, name, platform):
    """Downloads the wheel of one package."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder),
               "--python-version", args.python_version, "--platform", platform, name]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"error: pip could not download a wheel of {name} for Python {args.python_version} on {platform}")


def wheel_of(folder, name):
    stem = re.sub(r"[-_.]+", "_", name).lower()
    found = [w for w in sorted(folder.glob("*.whl")) if w.name.split("-")[0].lower() == stem]
    if len(found) != 1:
        sys.exit(f"error: {folder} must contain exactly one wheel of {name}, but has {len(found)}")
    return found[0]


def needs(wheel):
    """The names of the packages that a wheel requires, without those of its extras."""
    with zipfile.ZipFile(wheel) as z:
        (metadata,) = [n for n in z.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        lines = z.read(metadata).decode().split("\n\n")[0].splitlines()
    asked = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Requires-Dist:")]
    return [re.match(r"[\w.-]+", a)[0].lower() for a in asked if "extra ==" not in a]


def is_kept(name, cuda):
    library = LIBRARY.fullmatch(name)
    return not library or library[1] == "cpu" or library[2] == cuda


def unpack(wheel, folder, cuda):
    """Extracts the files to keep from a wheel; returns the bytes of the libraries that are left out."""
    left = 0
    with zipfile.ZipFile(wheel) as z:
        for info in z.infolist():
            if info.is_dir() or info.filename.startswith("/") or ".." in info.filename.split("/"):
                continue
            if not is_kept(info.filename, cuda):
                left += info.file_size
            else:
                z.extract(info, folder)
    return left


def strip(folder):
    for library in sorted(folder.glob("bitsandbytes/*.so")):
        if subprocess.run(["strip", "--strip-unneeded", library]).returncode != 0:
            sys.exit(f"error: strip failed on {library.name}")


def write_record(folder):
    """Limits the RECORD of each package to the existing files, with their checksums."""
    for record in folder.glob("*.dist-info/RECORD"):
        rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
        kept = []
        for name, digest, _ in rows:
            file = folder / name
            if not file.is_file():
                continue
            if digest:
                data = file.read_bytes()
                digest = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            kept.append((name, digest, file.stat().st_size if digest else ""))
        with open(record, "w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(kept)


def pack(folder, output):
    """Packs the folder so that the archive always has the same bytes."""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info
    with tarfile.open(output, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder), recursive=False, filter=plain)


def main():
    args = parse()
    cuda = args.cuda.replace(".", "")
    is_archive = args.output.name.endswith(".tar.xz")
    if not is_archive and args.output.exists() and any(args.output.iterdir()) and not (args.output / "bitsandbytes").is_dir():
        sys.exit(f"error: {args.output} is not empty and was not written by this program")
    with tempfile.TemporaryDirectory() as name:
        wheels, folder = args.wheels or Path(name) / "wheels", Path(name) / "packages"
        folder.mkdir()
        if not args.wheels:
            download(args, wheels, "bitsandbytes" + (f"=={args.version}" if args.version else ""), args.platform)
        wheel = wheel_of(wheels, "bitsandbytes")
        left = unpack(wheel, folder, cuda)
        if not (folder / f"bitsandbytes/libbitsandbytes_cuda{cuda}.so").exists():
            with zipfile.ZipFile(wheel) as z:
                has = sorted(m[2] for m in map(LIBRARY.fullmatch, z.namelist()) if m and m[2])
            sys.exit(f"error: {wheel.name} has no library for CUDA {args.cuda}; it has {', '.join(has) or 'none'}")
        for other in [n for n in needs(wheel) if n not in THERE]:
            if not args.wheels:
                download(args, wheels, other, "any")
            unpack(wheel_of(wheels, other), folder, cuda)
        if args.strip:
            strip(folder)
        write_record(folder)
        args.output.parent.mkdir(parents=True, exist_ok=True)
        if is_archive:
            pack(folder, args.output)
            size = args.output.stat().st_size
        else:
            shutil.rmtree(args.output, ignore_errors=True)
            shutil.copytree(folder, args.output)
            size = sum(f.stat().st_size for f in args.output.rglob("*") if f.is_file())
    print(f"{args.output}: {size / 1e6:.1f} MB, with libbitsandbytes_cuda{cuda}.so of {wheel.name}; {left / 1e6:.0f} MB of "
          "other libraries were left out")


if __name__ == "__main__":
    main()
