#!/usr/bin/env python3
"""Writes what the portable program is made of, from sources.txt, as CycloneDX 1.5.

Usage: make_sbom.py VERSION ZIG_VERSION > qtrain.cdx.json
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


def main() -> None:
    version, zig = sys.argv[1:]
    runtime = {"type": "library", "name": "libc++, libc++abi, libunwind and compiler-rt of zig", "version": zig,
               "purl": f"pkg:pypi/ziglang@{zig}", "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception"}]}
    program = {"type": "application", "name": "qtrain", "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}]}
    parts = [component(row) for row in ROWS if not row.startswith("#")]
    print(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": program},
                      "components": [*parts, runtime]}, indent=1))


if __name__ == "__main__":
    main()
