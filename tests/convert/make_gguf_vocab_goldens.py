"""Writes tests/convert/goldens/gguf_vocab: excerpts of llama.cpp's vocabulary files, and the ids of its test strings.

NAME.gguf       the tokens that a string of the test needs, and those that it would need if text were cut elsewhere (so
                that a wrong pre-tokenizer gives other ids), with the merges or scores between them
expected.json   {"texts": [...], "ids": {NAME: [[...], ...]}}: llama.cpp's .inp and .out, ids renumbered

An excerpt gives the ids of the whole: every merge that the whole vocabulary applies to a string leads to a token of it.

Run from the repository root with gguf and tokenizers, and llama.cpp's folder models/ with its vocabulary files
(ggml-vocab-NAME.gguf, .inp, .out): vendor/llama.cpp/models in the source archive of the Python package llama-cpp-python
0.3.36 (`pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36`):
    python tests/convert/make_gguf_vocab_goldens.py PATH/TO/llama.cpp/models
"""
import json
import pathlib
import sys

import gguf
from tokenizers import Tokenizer, models, pre_tokenizers

OUT = pathlib.Path(__file__).parent / "goldens" / "gguf_vocab"
NAMES = ["command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3",
         "qwen2", "qwen35", "refact", "starcoder"]
NORMAL = 1


def tests_of(folder, name):
    texts = (folder / f"ggml-vocab-{name}.gguf.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = (folder / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    ids = [[int(i) for i in line.split()] for line in lines]
    while len(ids) > len(texts):
        assert ids.pop() == []
    assert len(texts) == len(ids), name
    return texts, ids


def field(reader, key):
    return reader.fields[key].contents() if key in reader.fields else None


class Parents:
    """All pairs of tokens that a token can be merged from."""

    def __init__(self, tokens, merges):
        self.of = {}
        if merges is not None:
            for merge in merges:
                left, right = merge.split(" ")
                self.of.setdefault(left + right, []).append((left, right))
            return
        known = set(tokens)
        for token in tokens:
            cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
            self.of[token] = [c for c in cuts if c[0] in known and c[1] in known]

    def closure(self, tokens):
        found, todo = set(), list(tokens)
        while todo:
            token = todo.pop()
            if token not in found:
                found.add(token)
                todo.extend(part for cut in self.of.get(token, []) for part in cut)
        return found


def other_cuts(tokens, merges, texts):
    """The tokens of byte-level BPE if the texts are not split first, or only by GPT-2's expression."""
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    found = set()
    for regex in (False, True):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
        for text in texts:
            found.update(tokenizer.encode(text, add_special_tokens=False).tokens)
    return found


def write(path, reader, kept):
    tokens, types = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    writer = gguf.GGUFWriter(path, field(reader, "general.architecture"))
    writer.add_name(field(reader, "general.name"))
    for key in ("model", "pre"):
        writer.add_string(f"tokenizer.ggml.{key}", field(reader, f"tokenizer.ggml.{key}"))
    writer.add_token_list([tokens[i] for i in kept])
    writer.add_token_types([types[i] for i in kept])
    merges, scores = field(reader, "tokenizer.ggml.merges"), field(reader, "tokenizer.ggml.scores")
    if merges is not None:
        names = {tokens[i] for i in kept}
        writer.add_token_merges([m for m in merges if set(m.split(" ")) | {m.replace(" ", "")} <= names])
    elif scores is not None:
        writer.add_token_scores([scores[i] for i in kept])
    for key in ("add_bos_token", "add_eos_token"):
        if field(reader, f"tokenizer.ggml.{key}") is not None:
            writer.add_bool(f"tokenizer.ggml.{key}", bool(field(reader, f"tokenizer.ggml.{key}")))
    new_ids = {old: new for new, old in enumerate(kept)}
    for key in ("bos", "eos"):
        old = field(reader, f"tokenizer.ggml.{key}_token_id")
        if old in new_ids:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", new_ids[old])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return new_ids


def excerpt(folder, name):
    texts, ids = tests_of(folder, name)
    reader = gguf.GGUFReader(folder / f"ggml-vocab-{name}.gguf")
    tokens, types = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    merges = field(reader, "tokenizer.ggml.merges")
    needed = {tokens[i] for line in ids for i in line}
    if merges is not None:
        needed |= other_cuts(tokens, merges, texts)
    parents = Parents(tokens, merges)
    needed = parents.closure(needed)
    special = {field(reader, f"tokenizer.ggml.{k}_token_id") for k in ("bos", "eos", "unknown")}
    kept = [i for i, t in enumerate(tokens)
            if t in needed or i in special or (merges is not None and len(t) == 1) or types[i] == 6]
    new_ids = write(OUT / f"{name}.gguf", reader, kept)
    print(name, len(kept), "tokens", (OUT / f"{name}.gguf").stat().st_size, "bytes")
    return texts, [[new_ids[i] for i in line] for line in ids]


def main():
    folder = pathlib.Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    tests = {name: excerpt(folder, name) for name in NAMES}
    texts = sorted({t for texts, _ in tests.values() for t in texts})
    of_text = {name: dict(zip(*test)) for name, test in tests.items()}
    ids = {name: [of_text[name].get(t) for t in texts] for name in NAMES}
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(ids[name])}" for name in NAMES)
    (OUT / "expected.json").write_text(
        f'{{"texts": {json.dumps(texts, ensure_ascii=False)},\n"ids": {{\n{rows}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
