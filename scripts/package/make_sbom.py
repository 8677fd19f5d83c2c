#!/usr/bin/env python3
"""Writes a CycloneDX 1.5 bill of materials for a packaged program, from sources.txt.

Usage: make_sbom.py VERSION NAME=VERSION... > qtrain.cdx.json

The names are keys of RUNTIMES, the libraries that compilers add.
"""
import json
import pathlib
import sys
import urllib.parse

ROWS = pathlib.Path(__file__).with_name("sources.txt").read_text().splitlines()


def component(row: str) -> dict:
    name, version, file, digest, spdx = row.split("|")[:5]
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{name}@{urllib.parse.quote(version, safe='~')}?arch=source",
        "licenses": [{"license": {"id": spdx}}],
        "externalReferences": [
            {"type": "source-distribution", "url": file, "hashes": [{"alg": "SHA-256", "content": digest}]}],
    }


RUNTIMES = {
    "zig": {"name": "libc++, libc++abi, libunwind and compiler-rt of zig", "purl": "pkg:pypi/ziglang@{}",
            "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception"}]},
    "gcc": {"name": "libstdc++ and libgcc", "purl": "pkg:generic/gcc@{}",
            "licenses": [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}]},
    "cuda": {"name": "CUDA runtime", "purl": "pkg:generic/cuda-cudart@{}",
             "licenses": [{"expression": "LicenseRef-NVIDIA-CUDA-EULA"}]},
}


def runtime(name: str, version: str) -> dict:
    row = RUNTIMES[name]
    return {"type": "library", "name": row["name"], "version": version, "purl": row["purl"].format(version),
            "licenses": row["licenses"]}


def main() -> None:
    version, *runtimes = sys.argv[1:]
    program = {"type": "application", "name": "qtrain", "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}]}
    parts = [component(row) for row in ROWS if not row.startswith("#")]
    parts += [runtime(*argument.split("=")) for argument in runtimes]
    print(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": program},
                      "components": parts}, indent=1))


if __name__ == "__main__":
    main()
