#!/usr/bin/env python3
"""Writes unicode_tables.cpp: where the tokenizers library's classes of characters differ from Unicode 14.

PCRE2 and utf8proc come in versions with Unicode 14 and later; the library uses 16 in its expressions, 17 in Rust's own
classes and 8 in its punctuation. packed_ranges.h explains the form of the tables. Needs tokenizers and a Python whose
unicodedata is Unicode 14 (3.11).

    python text/tokenizer/make_unicode_tables.py > text/tokenizer/unicode_tables.cpp
    clang-format -i text/tokenizer/unicode_tables.cpp
"""

import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ["Lu", "Ll", "Lm", "Lo", "M", "Nd", "N", "P", "S"]


def single(pre_tokenizer) -> set:
    """The characters that a pre-tokenizer splits off as separate pieces."""
    out = set()
    for i in range(0, len(POINTS), 20000):
        text = "".join("\x00\x00" + chr(c) for c in POINTS[i:i + 20000]) + "\x00\x00"
        out |= {ord(t) for t, (a, b) in pre_tokenizer.pre_tokenize_str(text) if b - a == 1 and t != "\x00"}
    return out


def matched(pattern: str) -> set:
    return single(pre_tokenizers.Split(Regex(f"({pattern})"), "isolated"))


def ranges(points: set) -> list:
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def in_category(c: int, name: str) -> bool:
    return unicodedata.category(chr(c)).startswith(name)


def literal(words: list) -> None:
    """Prints words as adjacent string literals, as long as a line permits."""
    line = ""
    for word in words:
        if len(line) + len(word) > 107:
            print(f'      "{line}"')
            line = ""
        line += word + " "
    print(f'      "{line.rstrip()}");\n  return kRows;\n}}\n')


def table(name: str, comment: str, rows: list) -> None:
    print(f"// {comment}\nconst std::vector<CodePointRange>& {name}() {{")
    print("  static const std::vector<CodePointRange> kRows = unpacked_ranges(")
    words, end = [], 0
    for first, last, *category in rows:
        words.append(f"{first - end:x}" + f"+{last - first:x}" * (last > first) + "".join(f":{c}" for c in category))
        end = last
    literal(words)


def pairs(name: str, rows: list) -> None:
    print(f"const std::vector<std::pair<char32_t, std::int32_t>>& {name}() {{")
    print("  static const std::vector<std::pair<char32_t, std::int32_t>> kRows = unpacked_values(")
    words, end = [], 0
    for c, value in rows:
        words.append(f"{c - end:x}={value:x}")
        end = c
    literal(words)


def nfkd(c: int) -> str:
    return normalizers.NFKD().normalize_str(chr(c))


def known_to_normal_forms() -> list:
    """Ranges of characters that have a class, a decomposition or a composition in the library. Left out are characters
    that get one only in a later Unicode version, and unassigned ones, which may get one."""
    formed, others = set(), set()
    for c in POINTS:
        here, there, category = unicodedata.normalize("NFKD", chr(c)), nfkd(c), unicodedata.category(chr(c))
        sorts = c == 0x345 or normalizers.NFD().normalize_str("a\u0345" + chr(c))[1] != "\u0345"
        if sorts or there != chr(c):
            formed |= {c} | {ord(p) for p in normalizers.NFD().normalize_str(chr(c))}
        elif here != there:
            others |= {c} | {ord(p) for p in unicodedata.normalize("NFD", chr(c))}
        elif unicodedata.combining(chr(c)) or category == "Cn":
            others.add(c)
    return [(a, b) for a, b in ranges(set(POINTS) - (others - formed)) if not formed.isdisjoint(range(a, b + 1))]


def scripts() -> list:
    """First character and number of each run of one script; 0 joins the previous script."""
    step = pre_tokenizers.UnicodeScripts()
    cuts = lambda text: len(step.pre_tokenize_str(text)) > 1
    known = [c for c in POINTS if cuts("a" + chr(c)) or cuts("\u6f22" + chr(c))]
    ends = {b for _, (_, b) in step.pre_tokenize_str("".join(map(chr, known)))}
    firsts = [known[i] for i in range(len(known)) if i == 0 or i in ends]
    classes, rows = [], {}
    for first in firsts:
        number = next((i for i, c in enumerate(classes) if not cuts(chr(c) + chr(first))), len(classes))
        if number == len(classes):
            classes.append(first)
        rows[first] = number + 1
    out, joined, current, last = [], set(known), 0, None
    for c in range(0x110000):
        current = rows.get(c, current)
        number = current if c in joined else 0
        if number != last:
            out.append((c, number))
        last = number
    return out


def lower_changes() -> list:
    rows = []
    for c in POINTS:
        lower = normalizers.Lowercase().normalize_str(chr(c))
        if len(lower) == 1 and lower != chr(c).lower() and c > 0x7F:
            rows.append((c, ord(lower) - c))
    return rows


def main() -> None:
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    print('// Written by make_unicode_tables.py. Do not edit.\n#include "text/tokenizer/unicode_tables.h"\n')
    print('#include "text/tokenizer/packed_ranges.h"\n\nnamespace qtrain {\n')
    rows, known = [], set()
    for name in CATEGORIES:
        new = {c for c in matched(rf"\p{{{name}}}") if not in_category(c, name)} - known
        known |= new
        rows += [(a, b, "No" if name == "N" else name) for a, b in ranges(new)]
    table("characters_since_unicode_14", "First, last, general category.", sorted(rows))
    table("han_characters", "Script=Han.", ranges(matched(r"\p{Han}")))
    numeric = single(pre_tokenizers.Digits(individual_digits=True))
    table("numeric_since_unicode_14", "Numeric by Rust's char::is_numeric.",
          ranges({c for c in numeric if not in_category(c, "N")}))
    punctuation = single(pre_tokenizers.Punctuation())
    every = matched(r"\p{P}") | {c for c in POINTS if in_category(c, "P")}
    table("not_yet_punctuation", "General category P, but not for the Punctuation pre-tokenizer.",
          ranges(every - punctuation))
    table("once_punctuation",
          "Punctuation for the Punctuation pre-tokenizer, but not general category P (without ASCII).",
          ranges({c for c in punctuation - every if c > 0x7F}))
    table("normal_form_characters", "Characters known to the normal forms (others stay unchanged).",
          known_to_normal_forms())
    strip = normalizers.StripAccents()
    table("accent_characters", "Characters that StripAccents removes.", ranges({c for c in POINTS if not strip.normalize_str(chr(c))}))
    pairs("script_runs", scripts())
    pairs("lowercase_since_unicode_14", lower_changes())
    print("}  // namespace qtrain")


if __name__ == "__main__":
    sys.exit(main())
