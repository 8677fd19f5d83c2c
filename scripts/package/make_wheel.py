#!/usr/bin/env python3
"""Writes the wheel: a Python package that contains the program and starts it, without dependencies.

Usage: make_wheel.py --program FILE --version V --glibc 2.28 --kind cpu|cuda --licenses DIR --sbom FILE --output DIR

The same input gives the same bytes. Prints the path of the wheel.
"""
import argparse
import base64
import hashlib
import json
import pathlib
import re
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

INIT = '''"""qtrain fine-tunes and trains language models. It is a single program, which this package starts."""
import pathlib

PROGRAM = str(pathlib.Path(__file__).parent / "bin" / "qtrain")
'''

MAIN = '''import os
import sys

from qtrain import PROGRAM


def main():
    os.execv(PROGRAM, ["qtrain", *sys.argv[1:]])


if __name__ == "__main__":
    main()
'''


def license_expression(sbom: pathlib.Path) -> str:
    """The licenses of the program and of everything that is linked into it."""
    licenses = {"Apache-2.0"}
    for part in json.loads(sbom.read_text())["components"]:
        licenses |= {entry.get("expression") or entry["license"]["id"] for entry in part["licenses"]}
    return " AND ".join(sorted(licenses))


def description(readme: str) -> str:
    """README.md as the wheel's long description. The repository's files are not available there, so paragraphs with
    pictures and HTML comments are left out, and links to files become plain text."""
    paragraphs = re.sub(r"<!--.*?-->\n?", "", readme).split("\n\n")
    texts = [p.strip("\n") for p in paragraphs if not re.search(r"!\[.*?\]\((?!\w+:)", p) and p.strip()]
    return re.sub(r"\[([^\]]*)\]\((?!\w+:)[^)]*\)", r"\1", "\n\n".join(texts)) + "\n"


# The packages with the libraries that the CUDA backend opens at run time; toolkits and PyTorch include the same files.
CUDA_LIBRARIES = ["nvidia-cublas>=13,<14", "nvidia-nccl-cu13"]


def metadata(version: str, kind: str, expression: str, license_files: list[str]) -> str:
    head = {
        "Metadata-Version": "2.4",
        "Name": "qtrain",
        "Version": version,
        "Summary": "Fine-tunes and trains language models with one program, without a machine-learning framework",
        "License-Expression": expression,
        "Requires-Python": ">=3.8",
        "Description-Content-Type": "text/markdown",
    }
    lines = [f"{key}: {value}" for key, value in head.items()] + [f"License-File: {name}" for name in license_files]
    lines.append("Provides-Extra: cuda")
    if kind == "cuda":
        lines += [f'Requires-Dist: {library}; extra == "cuda"' for library in CUDA_LIBRARIES]
    return "\n".join(lines) + "\n\n" + description((ROOT / "README.md").read_text())


def files_of(args: argparse.Namespace) -> dict[str, bytes]:
    info = f"qtrain-{args.version}.dist-info"
    licenses = {"LICENSE": ROOT / "LICENSE", "NOTICE": ROOT / "NOTICE"}
    licenses |= {f"third_party/{f.name}": f for f in sorted(args.licenses.glob("*.txt"))}
    wheel = f"Wheel-Version: 1.0\nGenerator: qtrain\nRoot-Is-Purelib: false\nTag: {tag(args.glibc)}\n"
    texts = {
        "qtrain/__init__.py": INIT,
        "qtrain/__main__.py": MAIN,
        f"{info}/METADATA": metadata(args.version, args.kind, license_expression(args.sbom), list(licenses)),
        f"{info}/WHEEL": wheel,
        f"{info}/entry_points.txt": "[console_scripts]\nqtrain = qtrain.__main__:main\n",
    }
    files = {name: text.encode() for name, text in texts.items()}
    files["qtrain/bin/qtrain"] = args.program.read_bytes()
    files[f"{info}/sboms/qtrain.cdx.json"] = args.sbom.read_bytes()
    files |= {f"{info}/licenses/{name}": path.read_bytes() for name, path in licenses.items()}
    return files


def tag(glibc: str) -> str:
    return f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"


def record(files: dict[str, bytes], name: str) -> bytes:
    rows = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}")
    return ("\n".join([*rows, f"{name},,"]) + "\n").encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("program", "licenses", "sbom", "output"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--glibc", required=True)
    parser.add_argument("--kind", choices=["cpu", "cuda"], required=True)
    args = parser.parse_args()
    files = files_of(args)
    name = f"qtrain-{args.version}.dist-info/RECORD"
    files[name] = record(files, name)
    target = args.output / f"qtrain-{args.version}-{tag(args.glibc)}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in sorted(files.items(), key=lambda f: ".dist-info/" in f[0]):
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path == "qtrain/bin/qtrain" else 0o100644) << 16
            wheel.writestr(entry, data)
    print(target)


if __name__ == "__main__":
    main()
