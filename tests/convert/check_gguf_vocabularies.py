#!/usr/bin/env python3
"""Imports llama.cpp's vocabulary files and compares the ids of their test strings with llama.cpp's own.

    python tests/convert/check_gguf_vocabularies.py LLAMA_CPP/models [--program build/release/bin/qtrain]

The folder has ggml-vocab-NAME.gguf with .inp and .out next to it; release archives of llama.cpp contain it, and so does the
source archive of the Python package llama-cpp-python 0.3.36 (vendor/llama.cpp/models; `pip download --no-deps
--no-binary llama-cpp-python`). Those without .inp, and tokenizers of other kinds, must be imported or refused by name.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ["command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3",
         "qwen2", "qwen35", "refact", "starcoder"]
SEPARATOR = "\n__ggml_vocab_test__\n"


def run(*command) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def expected(file: Path) -> list:
    texts = Path(f"{file}.inp").read_text(encoding="utf-8").split(SEPARATOR)
    lines = Path(f"{file}.out").read_text().split("\n")
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines)]


def differences(program: str, file: Path, scratch: Path) -> int:
    """Prints and returns the number of strings with different ids, or -1 if the file is not imported."""
    folder = scratch / file.stem
    done = run(program, "import", file, "--output", folder)
    if done.returncode:
        print(f"{file.name}: not imported: {done.stderr.strip()}")
        return -1
    tests = expected(file)
    strings = scratch / "strings.jsonl"
    strings.write_text("".join(json.dumps(text) + "\n" for text, _ in tests))
    done = run(program, "tokenize", "--model", folder, "--input", strings, "--no_special")
    ids = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [(test, got) for test, got in zip(tests, ids) if test[1] != got]
    wrong += [(test, done.stderr) for test in tests[len(ids):]]
    for (text, reference), got in wrong[:5]:
        print(f"  {text!r}: {got} instead of {reference}")
    print(f"{file.name}: {len(tests)} strings, {len(wrong)} differences")
    return len(wrong)


def refused_by_name(program: str, file: Path, scratch: Path) -> bool:
    done = run(program, "import", file, "--output", scratch / file.stem)
    print(f"{file.name}: {'imported' if done.returncode == 0 else done.stderr.strip().splitlines()[0]}")
    return done.returncode == 0 or (done.returncode == 3 and "tokenizer" in done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--program", default="build/release/bin/qtrain")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in KINDS:
            file = arguments.models / f"ggml-vocab-{name}.gguf"
            failed += differences(arguments.program, file, Path(scratch)) != 0
        for file in sorted(arguments.models.glob("ggml-vocab-*.gguf")):
            if file.stem.removeprefix("ggml-vocab-") not in KINDS:
                failed += not refused_by_name(arguments.program, file, Path(scratch))
    print(f"{failed} files failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
