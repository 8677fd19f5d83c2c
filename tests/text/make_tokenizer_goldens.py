#!/usr/bin/env python3
"""Writes tests/text/goldens/tokenizer/: small tokenizers, one for each feature, and how the libraries tokenize texts with them.

Needs tokenizers, transformers and sentencepiece; run it from anywhere:
    python tests/text/make_tokenizer_goldens.py            # writes the files
    python tests/text/make_tokenizer_goldens.py --check    # compares with the files that are there
    python tests/text/make_tokenizer_goldens.py --train    # trains the tokenizers of the cases again

Training breaks ties at random, so that without --train the tokenizers of the files that are there stay.
"""

import argparse
import base64
import io
import json
import random
import struct
import sys
import tempfile
import unicodedata
import zlib
from pathlib import Path

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)
from transformers import AutoTokenizer

FOLDER = Path(__file__).parent / "goldens" / "tokenizer"

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the other dogs look on. It's what they've seen before.",
    "MATCH (p:Person)-[:ACTED_IN]->(f:Film) WHERE f.year > 1999 RETURN p.name ORDER BY f.year LIMIT 250",
    "def add(a, b):\n    return a + b\n\n\nclass Thing:\n    def __init__(self):\n        self.count = 12345\n",
    "Grüße aus Köln, naïve café. Привет мир и привет снова. 東京と京都、東京タワー。 नमस्ते दुनिया 😀😀",
] * 6

TEXTS = [
    "", " ", "  ", "a", "The quick brown fox", " The dogs  look   on.\n", "It's they've THEY'VE I'M we'll'd 'S",
    "def add(a, b):\n    return a + b\n\n\n", "x=1234567890; y=12 345\t6\r\n\r\n7", "\n\n \n  \n", "a\u00a0b\u3000c\u2028d\u0085e",
    "Grüße aus Köln", "nai\u0308ve cafe\u0301 \u212b \u1112\u1161\u11ab o\u0323\u0302", "ﬁne ½ ² Ⅷ ① ㍿ ｱｲｳ", "Привет, МИР! İstanbul ΣΊΣΥΦΟΣ",
    "東京タワー、京都。", "नमस्ते दुनिया क्षि", "مرحبا ٣٤٥ ﷺ שלום", "😀👩‍👩‍👧‍👦🏳️‍🌈🇩🇪1️⃣", "\x00\x01\x7f\ufeff\ufffd\ufffe\U0010ffff", "\u200b\u200d\u180e\u00ad",
    "<s>hello</s> <s> <unk>", "<|a|><|b|>  <|a|>x <|b|> <|a|", "MASK mask Mask unmask [MASK]  x", "▁a▁▁b ▁ c", "<0x41><0xE6>A",
    "https://example.org/a?b=c&d=%20e_f-g", "«quoted» “text” — dash… ¿que? 100% $5 a+b=c x^y `z` ~", "-1.5e-10 0xFF 1,000",
    "the the the the", "thethethe" * 8, "    indented\n\tline", "\U00013460\U000138ad\u1c8a\U0002ebf0\U00011f50 newer",
    "word " * 30, "caféCAFÉ café́", "a,b;c:d!e?f.g", "(((nested))) [[x]] {{y}}", "Ünïcödé_wörd12 snake_case CamelCase",
]


def byte_bpe(size=340, alphabet=True, **options):
    """A BPE tokenizer trained on the corpus in ByteLevel's alphabet; other steps are added afterwards."""
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, initial_alphabet=letters, show_progress=False))
    t.decoder = decoders.ByteLevel()
    return t


def spaced_bpe(size=160, special=("<unk>", "<s>", "</s>"), **options):
    """A BPE tokenizer over words that begin with U+2581."""
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), limit_alphabet=70, show_progress=False)
    t.train_from_iterator(CORPUS, trainer)
    return t


def changed(t, **parts):
    """The tokenizer with top-level parts, or options of the model (model={...}), replaced in its JSON."""
    j = json.loads(t.to_str())
    for key, value in parts.items():
        if key == "model":
            j["model"].update(value)
        else:
            j[key] = value if value is None or isinstance(value, (dict, list)) else json.loads(value.__getstate__())
    return Tokenizer.from_str(json.dumps(j))


def with_steps(t, *steps):
    t.pre_tokenizer = pre_tokenizers.Sequence(list(steps)) if len(steps) > 1 else steps[0]
    return t


PLAIN_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def with_byte_tokens(t, missing=()):
    j = json.loads(t.to_str())
    vocab = j["model"]["vocab"]
    for b in range(256):
        if b not in missing:
            vocab.setdefault(f"<0x{b:02X}>", len(vocab))
    return Tokenizer.from_str(json.dumps(j))


def llama_style():
    t = with_byte_tokens(spaced_bpe(260, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = None
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(j))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return t


def gemma_style():
    """Spaces are replaced, so there are none to split at; nothing is inserted before a text."""
    t = llama_style()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def bos_and_eos():
    t = byte_bpe()
    t.add_special_tokens(["<s>", "</s>"])
    ids = [(s, t.token_to_id(s)) for s in ("<s>", "</s>")]
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> <s> $A </s>", pair="$A $B", special_tokens=ids)])
    return t


def added():
    t = byte_bpe()
    t.normalizer = normalizers.Lowercase()
    t.add_special_tokens(["<|a|>", AddedToken("<|b|>", lstrip=True, rstrip=True, special=True), AddedToken("<|a", special=True)])
    t.add_tokens([AddedToken("MASK", single_word=True, normalized=False), AddedToken("[MASK]", normalized=True),
                  AddedToken("  ", normalized=False), AddedToken("Köln", normalized=True, lstrip=True),
                  AddedToken("é", normalized=False), AddedToken("the", single_word=True, normalized=True, rstrip=True)])
    return t


def normalized():
    t = byte_bpe()
    t.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Replace("--", "—"), normalizers.Replace(Regex("[0-9]"), "0")])
    return t


def unigram(**options):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace(**options)
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=170, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    t.decoder = decoders.Metaspace(**options)
    return t


def unigram_bytes():
    j = json.loads(unigram().to_str())
    j["model"]["byte_fallback"] = True
    j["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return t


def old_merges(t):
    """Merges as "a b", as in files before 2024."""
    j = json.loads(t.to_str())
    j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
    return j


def without_bytes(t, gone, **model):
    """Leaves out tokens that contain these characters."""
    j = json.loads(t.to_str())
    keep = [k for k in j["model"]["vocab"] if not set(k) & set(gone)]
    j["model"]["vocab"] = {k: i for i, k in enumerate(keep)}
    j["model"]["merges"] = [m for m in j["model"]["merges"] if not set("".join(m)) & set(gone)]
    if model.get("unk_token"):
        j["model"]["vocab"][model["unk_token"]] = len(keep)
    j["model"].update(model)
    return Tokenizer.from_str(json.dumps(j))


def small_cases():
    yield "byte_level", byte_bpe()
    yield "byte_level_prefix_space", with_steps(byte_bpe(), pre_tokenizers.ByteLevel(add_prefix_space=True))
    yield "old_merges", old_merges(byte_bpe(300))
    yield "digits_single", with_steps(byte_bpe(), pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False))
    yield "digits_runs", with_steps(byte_bpe(), pre_tokenizers.Digits(False), PLAIN_BYTES)
    t = with_steps(byte_bpe(), split(Regex(QWEN), "isolated"), PLAIN_BYTES)
    t.normalizer = normalizers.NFC()
    yield "qwen_style", t
    t = with_steps(byte_bpe(), split(Regex(LLAMA3), "isolated"), PLAIN_BYTES)
    yield "llama3_style", changed(t, model={"ignore_merges": True, "merges": json.loads(t.to_str())["model"]["merges"][:20]})
    yield "o200k_style", with_steps(byte_bpe(), split(Regex(O200K), "removed", True), PLAIN_BYTES)
    yield "split_removed", with_steps(byte_bpe(), split("e", "removed"), PLAIN_BYTES)
    yield "split_previous", with_steps(byte_bpe(), split(Regex("[a-f ]"), "merged_with_previous"), PLAIN_BYTES)
    yield "split_next", with_steps(byte_bpe(), split(Regex("[a-f ]"), "merged_with_next", True), PLAIN_BYTES)
    yield "split_contiguous", with_steps(byte_bpe(), split(Regex(r"[[:alpha:]]".replace("[[:alpha:]]", r"[\p{L}[_-]]")),
                                                           "contiguous"), PLAIN_BYTES)
    yield "split_empty_matches", with_steps(byte_bpe(), split(Regex(r"(?=[A-Z])|\b"), "isolated"), PLAIN_BYTES)
    yield "split_lines", with_steps(byte_bpe(), split(Regex(r"^\h{2,}|\w+$|\d|\p{Han}+|\p{^L}\v?"), "isolated"), PLAIN_BYTES)
    yield "punctuation", with_steps(byte_bpe(), pre_tokenizers.Punctuation("merged_with_previous"), PLAIN_BYTES)
    yield "whitespace", with_steps(byte_bpe(), pre_tokenizers.Whitespace(), PLAIN_BYTES)
    yield "whitespace_split", with_steps(byte_bpe(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), PLAIN_BYTES)
    yield "byte_level_first", with_steps(byte_bpe(), pre_tokenizers.Punctuation("contiguous"),
                                         pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(False),
                                         split(Regex("[0-9][0-9][0-9]"), "isolated"))
    yield "bytes_missing", without_bytes(byte_bpe(), "ãeĠ")
    yield "bytes_missing_unk", without_bytes(byte_bpe(), "ãeĠ", unk_token="<unk>", fuse_unk=True)
    yield "bytes_missing_unk_single", without_bytes(byte_bpe(), "ãeĠ", unk_token="<unk>")
    yield "llama_style", llama_style()
    yield "gemma_style", gemma_style()
    t = with_byte_tokens(spaced_bpe(200, unk_token="<unk>", byte_fallback=True), missing=(0x9F, 0xE3, 0xA9))
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    yield "byte_fallback_gaps", t
    t = spaced_bpe(unk_token="<unk>", fuse_unk=True)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    yield "metaspace_first", t
    t = spaced_bpe()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    yield "metaspace_whole_no_unk_no_decoder", changed(t, decoder=None)
    yield "added_tokens", added()
    yield "normalizers", normalized()
    yield "bos_and_eos", bos_and_eos()
    t = with_steps(byte_bpe(), PLAIN_BYTES)
    t.post_processor = processors.RobertaProcessing(("b", 66), ("a", 65))
    yield "roberta_frame", t
    yield "unigram", unigram()
    yield "unigram_first", unigram(prepend_scheme="first")
    yield "unigram_bytes", unigram_bytes()


def flat(pairs):
    return [n for pair in pairs for n in pair]


# Tokenizers for which more than the ids is recorded.
FULL = ["byte_level", "byte_level_prefix_space", "qwen_style", "bytes_missing_unk", "llama_style", "byte_fallback_gaps",
        "metaspace_first", "metaspace_whole_no_unk_no_decoder", "added_tokens", "normalizers", "bos_and_eos", "unigram",
        "unigram_bytes", "config_decoder"]


# The library's offsets are wrong after characters that it drops or that bytes overtake.
SHIFTED = ["byte_fallback_gaps", "metaspace_whole_no_unk_no_decoder", "config_decoder"]


def results(name: str, t: Tokenizer):
    rows = []
    for text in TEXTS:
        with_special, plain = t.encode(text), t.encode(text, add_special_tokens=False)
        row = {"ids": with_special.ids}
        rows.append(row)
        if plain.ids != with_special.ids:
            row["plain"] = plain.ids
        if name not in FULL:
            continue
        if name not in SHIFTED:
            row["offsets"] = flat(plain.offsets)
        row["decoded"] = t.decode(plain.ids, skip_special_tokens=False)
        skipped = t.decode(plain.ids)
        if skipped != row["decoded"]:
            row["skipped"] = skipped
    return rows


def small_case(name, t):
    j = t if isinstance(t, dict) else json.loads(t.to_str())
    t = Tokenizer.from_str(json.dumps(j))
    return {"files": {"tokenizer.json": j}, "size": max(t.get_vocab().values()) + 1, "results": results(name, t)}


def folder_case(name, files):
    """Loads a folder as transformers does."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            (Path(folder) / file).write_text(json.dumps(content))
        t = AutoTokenizer.from_pretrained(folder)
        special = {k: v for k, v in t.special_tokens_map.items() if isinstance(v, str)}
        ids = {k: t.convert_tokens_to_ids(v) for k, v in special.items()}
        return {"files": files, "size": len(t), "special": special, "special_ids": ids,
                "is_special": sorted(i for i, a in t.added_tokens_decoder.items() if a.special),
                "results": results(name, t.backend_tokenizer)}


def folder_cases():
    base = json.loads(spaced_bpe(120, special=["<s>", "</s>"], unk_token=None).to_str())
    def token(content, **more):
        return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False,
                "special": True, "__type": "AddedToken"} | more
    decoder = {"1": token("</s>", lstrip=True), "900": token("<|b|>", special=False), "800": token("<|a|>", rstrip=True)}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": token("</s>"),
              "pad_token": token("<pad>"), "unk_token": "<unk>", "additional_special_tokens": ["MASK"]}
    ignored = {"bos_token": "<other>", "mask_token": "<mask>"}
    yield "config_decoder", {"tokenizer.json": base, "special_tokens_map.json": ignored,
                             "tokenizer_config.json": config | {"added_tokens_decoder": decoder}}
    yield "config_legacy", {"tokenizer.json": base, "tokenizer_config.json": config, "special_tokens_map.json": ignored,
                            "added_tokens.json": {"<|b|>": 121, "<|a|>": 120}}


def sentencepiece_cases():
    texts = [t for t in TEXTS if "<s>" not in t]
    for kind, options in {"bpe": {"byte_fallback": True, "split_digits": True}, "unigram": {}}.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(" ".join(CORPUS).split("\n")), model_writer=model, model_type=kind,
            vocab_size=400 if options else 130, normalization_rule_name="identity",
            character_coverage=0.98, minloglevel=2, hard_vocab_limit=False, num_threads=1, **options)
        s = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        rows = [{"text": t, "ids": s.encode(t), "decoded": s.decode(s.encode(t))} for t in texts]
        yield f"sentencepiece_{kind}", {"model": base64.b64encode(model.getvalue()).decode(), "size": s.get_piece_size(),
                                        "bos": s.bos_id(), "eos": s.eos_id(), "results": rows}


# Characters that normal forms move, decompose and compose; some are newer than the library's tables.
MARKS = [c for c in range(0x20000) if unicodedata.combining(chr(c))]
COMPOSED = [c for c in range(0x30000) if unicodedata.decomposition(chr(c))]
YOUNG = [0xD3C, 0x897, 0x8D3, 0x1DF9, 0x1E2EC, 0x10F48, 0x11838, 0x11930, 0x11935, 0x11938, 0x11390, 0x113C9, 0x16121,
         0x1611F, 0x16D63, 0x1E030, 0x1E4EC, 0x10EFD, 0x1B4B]
JAMO = [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3), 0xAC00, 0xAC01, 0xD7A3]
EMOJI = [0x200D, 0x1F469, 0x1F468, 0x1F3FB, 0xFE0F, 0x1F3F3, 0x1F308, 0x20E3, 0x31]
PLAIN = [*map(ord, "aeoAEuy sSdD<>=.1"), 0x3A9, 0x4E2D, 0x30AB, 0x30FC, 0x431, 0xF71, 0xF73, 0x958, 0x344, 0x1D15E]


def random_text(draw):
    pools = draw.choice([[MARKS, COMPOSED, YOUNG, PLAIN, JAMO], [MARKS, MARKS, PLAIN, YOUNG], [JAMO], [EMOJI], [PLAIN]])
    return "".join(chr(draw.choice(draw.choice(pools))) for _ in range(draw.randint(1, 16)))


def steps_on_random_texts():
    draw = random.Random(1)
    known = {"normalizers": [], "pre_tokenizers": []}
    all_forms = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD()]
    for step in all_forms + [normalizers.StripAccents(), normalizers.Nmt(), normalizers.ByteLevel(),
                             normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()])]:
        texts = [random_text(draw) for _ in range(120 if step in all_forms else 30)]
        known["normalizers"].append({"step": json.loads(step.__getstate__()),
                                     "rows": [[t, step.normalize_str(t)] for t in texts]})
    for step in [pre_tokenizers.UnicodeScripts(), pre_tokenizers.CharDelimiterSplit("e"),
                 pre_tokenizers.BertPreTokenizer(), pre_tokenizers.FixedLength(3)]:
        texts = ["", " ", "  a", "a b  \u6f22\u5b57 \u30ab\u30fc1", "eee", *(random_text(draw) for _ in range(40))]
        known["pre_tokenizers"].append({"step": json.loads(step.__getstate__()),
                                        "rows": [[t, [p for p, _ in step.pre_tokenize_str(t)]] for t in texts]})
    return known


def unigram_vocabulary(draw, kind, letters):
    """Scores with ties: the order of equal paths, and the last bit of a sum, decide."""
    as_float32 = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    scores = {"equal": lambda t: -1.0, "by_length": lambda t: -1.1 * len(t),
              "few": lambda t: as_float32(draw.choice([-1.2345678, -2.7182817, -9.876543]))}
    score = scores.get(kind, lambda t: as_float32(-15 * draw.random()))
    tokens = sorted({"".join(draw.choices(letters, k=draw.choice([1, 1, 2, 2, 3, 4, 5]))) for _ in range(40)})
    vocab = [[t, score(t)] for t in tokens]
    if kind == "no_unknown":
        return [["ab", -1.0], ["a", -2.0], ["abc", -2.5], ["c", -1.0], ["ca", -1.0]], None
    if kind == "twice":
        vocab += [[t, score(t)] for t in draw.sample(tokens, 6)]
    unknown = draw.randrange(len(vocab))
    vocab.insert(unknown, ["<unk>", 0.0])
    return vocab, unknown


def unigrams_on_random_texts():
    draw = random.Random(2)
    rows = []
    for kind in ["equal", "by_length", "few", "float32", "float32", "twice", "bytes", "bytes_missing", "no_unknown"]:
        letters = draw.choice(["ab", "abc", "a\u00e9\u6f22", "ab\U0001f600"])
        vocab, unknown = unigram_vocabulary(draw, kind, letters)
        missing = draw.sample(range(256), 20) if kind == "bytes_missing" else []
        if kind.startswith("bytes"):
            vocab += [[f"<0x{b:02X}>", -5.5] for b in range(256) if b not in missing]
        model = {"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": kind.startswith("bytes")}
        t = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
        others = "" if unknown is None else draw.choice(["xyz", "\u00e9\u0301", "<unk>", "\U0001f642z"])
        texts = ["".join(draw.choices(letters + others, k=draw.randint(1, 30))) for _ in range(40)]
        texts += [letters[0] * n for n in range(2, 30, 3)] + ["<unk>" * 3, letters[0] + "<unk><unk>"]
        if unknown is None:
            texts = ["ab", "abc", "aab", "caab", "cabcab", "a"]
        rows.append({"name": kind, "model": model, "rows": [[x, t.encode(x).ids] for x in texts]})
    return rows


def digest(text):
    return zlib.crc32(text.encode())


def every_character():
    """All characters, between separators: where each step splits, and the result of each normalizer."""
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    known = {"pre_tokenizers": [], "normalizers": []}
    patterns = [r"\p{L}", r"\p{N}", r"\p{M}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{P}", r"\p{S}",
                r"\p{Z}", r"\d", r"\s", r"\S", r"\w", r"\W", r"\h", r"\p{Han}", r"[^\s\p{L}\p{N}]", r"\P{L}",
                r"(?i:['](s|k|i|é))a"]
    steps = [split(Regex(p), "isolated") for p in patterns]
    steps += [pre_tokenizers.Digits(True), pre_tokenizers.Punctuation(), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
              pre_tokenizers.BertPreTokenizer(), pre_tokenizers.UnicodeScripts()]
    texts = ["".join(f"'{chr(c)}a{chr(c)}\x00" for c in points[i:i + 8192]) for i in range(0, len(points), 8192)]
    for step in steps:
        ends = [end for text in texts for _, (_, end) in step.pre_tokenize_str(text)]
        known["pre_tokenizers"].append({"step": json.loads(step.__getstate__()), "pieces": len(ends), 
                                       "digest": digest(" ".join(map(str, ends)))})
    for step in [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(),
                 normalizers.StripAccents(), normalizers.Nmt()]:
        out = "".join(step.normalize_str(t) for t in texts)
        known["normalizers"].append({"step": json.loads(step.__getstate__()), "characters": len(out),
                                     "digest": digest(out)})
    return known


def stored(name):
    """The existing files of a case, or nothing."""
    file = FOLDER / f"case_{name}.json"
    return json.loads(file.read_text())["files"] if file.exists() else None


def files(train):
    yield "texts.json", TEXTS
    for name, t in small_cases():
        known = None if train else stored(name)
        yield f"case_{name}.json", small_case(name, known["tokenizer.json"] if known else t)
    for name, contents in folder_cases():
        known = None if train else stored(name)
        yield f"case_{name}.json", folder_case(name, known or contents)
    for name, case in sentencepiece_cases():
        yield f"{name}.json", case
    yield "every_character.json", every_character()
    yield "random_steps.json", steps_on_random_texts()
    yield "random_unigrams.json", unigrams_on_random_texts()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--train", action="store_true")
    check, train = parser.parse_args().check, parser.parse_args().train
    FOLDER.mkdir(parents=True, exist_ok=True)
    different = []
    for name, content in files(train):
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
        if not check:
            (FOLDER / name).write_text(text)
        elif (FOLDER / name).read_text() != text:
            different.append(name)
    if different:
        sys.exit("differ: " + ", ".join(different))


if __name__ == "__main__":
    main()
