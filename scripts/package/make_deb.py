#!/usr/bin/env python3
"""Writes the Debian package of an installed tree.

Usage: make_deb.py --stage DIR --version V --glibc 2.28 --licenses DIR --sbom FILE --time N --output FILE

The tree's program, man page and completions go below /usr, its documentation to /usr/share/doc/qtrain with a copyright file
for everything that is linked. Calls dpkg-deb.
"""
import argparse
import email.utils
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAINTAINER = "The qtrain developers <qtrain@localhost.invalid>"

CONTROL = """Package: qtrain
Version: {version}
Architecture: amd64
Maintainer: {maintainer}
Installed-Size: {size}
Depends: libc6 (>= {glibc})
Section: science
Priority: optional
Description: trainer of language models without a framework
 One program that fine-tunes and trains transformer language models from a
 JSON config, a JSONL dataset and a model folder: all weights, LoRA and QLoRA,
 with checkpoints that resume bit for bit. Its files load into transformers,
 PEFT and llama.cpp.
"""

OVERRIDES = """# Linked statically, because distributions have different versions of these libraries.
qtrain: embedded-library ncurses [usr/bin/qtrain]
qtrain: embedded-library zlib [usr/bin/qtrain]
"""


def copyright_text(licenses: pathlib.Path, sbom: pathlib.Path) -> str:
    parts = json.loads(sbom.read_text())["components"]
    lines = ["qtrain is licensed under the Apache License, Version 2.0, which is in",
             "/usr/share/common-licenses/Apache-2.0 on Debian systems.", "", "Copyright: the qtrain developers", "",
             (ROOT / "NOTICE").read_text().strip(), "", "Linked into the program, with the licenses below:", ""]
    for part in parts:
        names = [entry.get("expression") or entry["license"]["id"] for entry in part["licenses"]]
        lines.append(f"  {part['name']} {part['version']}: {', '.join(names)}")
    for file in sorted(licenses.glob("*.txt")):
        text = file.read_text(errors="replace").strip()
        if "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text:
            text = "/usr/share/common-licenses/Apache-2.0" + (
                " with the exceptions of LLVM: https://llvm.org/LICENSE.txt" if "LLVM" in text else "")
        lines += ["", f"---- {file.stem} ----", "", text]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def changelog(version: str, time: int) -> bytes:
    date = email.utils.formatdate(time)
    text = f"qtrain ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md for the changes.\n\n -- {MAINTAINER}  {date}\n"
    return gzip.compress(text.encode(), 9, mtime=0)


def fill(tree: pathlib.Path, args: argparse.Namespace) -> None:
    shutil.copytree(args.stage, tree / "usr", symlinks=True)
    doc = tree / "usr/share/doc/qtrain"
    shutil.rmtree(doc / "third_party")
    (doc / "LICENSE").unlink()  # Debian already has this license
    (doc / "copyright").write_text(copyright_text(args.licenses, args.sbom))
    (doc / "changelog.gz").write_bytes(changelog(args.version, args.time))
    overrides = tree / "usr/share/lintian/overrides/qtrain"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(OVERRIDES)
    for page in (tree / "usr/share/man").glob("man*/*.[1-9]"):
        page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        os.utime(path, (args.time, args.time))


def control(tree: pathlib.Path, args: argparse.Namespace) -> None:
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files) // 1024 + 1
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files]
    folder = tree / "DEBIAN"
    folder.mkdir(mode=0o755)
    (folder / "control").write_text(
        CONTROL.format(version=args.version, maintainer=MAINTAINER, size=size, glibc=args.glibc))
    (folder / "md5sums").write_text("".join(sums))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("stage", "licenses", "sbom", "output"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--glibc", required=True)
    parser.add_argument("--time", type=int, required=True, help="modification time of all files, in seconds since 1970")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "qtrain"
        fill(tree, args)
        control(tree, args)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, args.output], check=True,
                       env={"SOURCE_DATE_EPOCH": str(args.time), "PATH": "/usr/bin:/bin"})


if __name__ == "__main__":
    main()
