#!/usr/bin/env python3
"""Writes tests/data/golden/: the rows that TRL, transformers and tokenizers make from small data files.

Needs torch, transformers, trl, tokenizers and datasets; run it from anywhere:
    python tests/data/make_data_goldens.py            # writes the files
    python tests/data/make_data_goldens.py --check    # compares with the files that are there
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.trainer_pt_utils import get_length_grouped_indices
from trl import SFTConfig, SFTTrainer, pack_dataset

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Which film did she direct? List the people who work there.",
    "MATCH (p:Person)-[:ACTED_IN]->(f:Film) WHERE f.year > 1999 RETURN p.name, f.title ORDER BY f.year LIMIT 5",
    "You are a helpful assistant. Answer in one sentence. What is the capital of France? It is Paris.",
    "def add(a, b):\n    return a + b\n\nGrüße aus Köln, naïve café, 東京 と 京都, Привет мир.",
] * 4

CHATML = """{%- if tools %}<|im_start|>system
{%- for tool in tools %} {{ tool.name }}{% endfor %}<|im_end|>
{% endif %}{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{{- '\\n' }}
{%- else %}
{{- message['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking %}{{ '<think>' }}{% endif %}
{%- endif %}"""

# A template like [INST] that trims contents, joins messages without a separator token, and writes BOS itself.
INST = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}
{{- '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}
{%- generation %}{{ ' ' + message['content'] + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""


def make_tokenizer(folder: Path, bos: bool) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer; with `bos`, it adds <s> before every text and has the INST template, otherwise
    ChatML."""
    names = ["<pad>", "<s>", "</s>"] if bos else ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=names, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    raw.train_from_iterator(CORPUS, trainer)
    if bos:
        raw.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", raw.token_to_id("<s>"))]
        )
    special = (
        {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
        if bos
        else {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}  # pad == eos must not mask EOS
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **special)
    tokenizer.chat_template = INST if bos else CHATML
    tokenizer.save_pretrained(folder)
    return tokenizer


def conversation(rng: random.Random, turns: int) -> list[dict]:
    words = "film person year capital fox dog naïve 東京 Köln return sentence 🦊 👩‍💻 direct".split()
    say = lambda n: " ".join(rng.choice(words) for _ in range(n))
    messages = [{"role": "system", "content": say(3)}] if rng.random() < 0.4 else []
    for _ in range(turns):
        messages += [{"role": "user", "content": say(rng.randint(1, 6)) + "?"}]
        messages += [{"role": "assistant", "content": say(rng.randint(1, 8)) + "."}]
    return messages


def make_inputs() -> dict[str, list[dict]]:
    rng = random.Random(7)
    messages = [{"messages": conversation(rng, rng.randint(1, 3))} for _ in range(10)]
    messages[3]["tools"] = json.dumps([{"name": "search"}, {"name": "add"}])
    messages[4]["tools"] = None
    for row in messages[5:]:
        row["tools"] = None
    for row in messages[:3]:
        row["tools"] = None
    chat_pair = []
    for _ in range(8):
        talk = conversation(rng, 2)
        chat_pair.append({"prompt": talk[:-1], "completion": talk[-1:], "chat_template_kwargs": {}})
    for row in chat_pair[:4]:  # the prompt alone ends in <think>, prompt + completion does not have it
        row["chat_template_kwargs"] = {"enable_thinking": True}
    for row in chat_pair[4:]:
        row["chat_template_kwargs"] = {"enable_thinking": False}
    pairs = [
        {"prompt": "What is the capital of France?", "completion": " It is Paris."},
        {"prompt": "def add(a, b):\n    ret", "completion": "urn a + b\n"},  # merges across the border
        {"prompt": "List", "completion": "<EOS>"},
        {"prompt": "東", "completion": "京 と 京都"},
        {"prompt": "a " * 40, "completion": "Paris."},  # the completion is cut off
        {"prompt": "", "completion": "Which film?"},
        {"prompt": "Answer: ", "completion": ""},
    ]
    texts = [
        "The quick brown fox.", "", "Ends already.<EOS>", "naïve café 🦊👩‍💻 東京", "line one\nline two\r\n\ttab",
        "U+2028 \u2028 and U+0085 \u0085 are no row ends", "word " * 50, "x", "<EOS>", " leading and trailing ",
    ]
    ids = [{"input_ids": [rng.randint(3, 300) for _ in range(rng.randint(1, 30))]} for _ in range(12)]
    for row in ids:
        row["labels"] = [t if rng.random() < 0.6 else -100 for t in row["input_ids"]]
    ids[2]["labels"] = [-100] * len(ids[2]["labels"])
    share = [
        {"conversations": [{"from": "user", "value": "Which film?"}, {"from": "assistant", "value": "The fox."}]},
        {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "user", "value": "dog?"},
                           {"from": "assistant", "value": "Yes, a lazy dog."}]},
    ]
    many = [{"input_ids": [rng.randint(3, 300) for _ in range(rng.choice([1, 2, 3, 3, 5, 8]))]} for _ in range(1040)]
    return {
        "messages": messages, "chat_pair": chat_pair, "text_pair": pairs, "text": [{"text": t} for t in texts],
        "ids": ids, "conversations": share, "many": many,
    }


# (name, input file, tokenizer, options of SFTConfig)
def cases() -> list[tuple[str, str, str, dict]]:
    packings = {"none": {}, **{s: {"packing": True, "packing_strategy": s} for s in ("bfd", "bfd_split", "wrapped")}}
    out = []
    for packing, options in packings.items():
        for file in ("messages", "chat_pair", "text_pair", "text", "ids", "conversations"):
            length = 112 if file == "chat_pair" else 48
            out.append((f"{file}-{packing}", file, "chatml", {"max_length": length, **options}))
        out.append((f"messages-assistant-{packing}", "messages", "chatml",
                    {"max_length": 48, "assistant_only_loss": True, **options}))
        if packing in ("bfd", "wrapped"):  # more rows than one batch of datasets.map
            out.append((f"many-{packing}", "many", "chatml", {"max_length": 16, **options}))
    out += [
        ("chat_pair-cut", "chat_pair", "chatml", {"max_length": 64}),
        ("messages-assistant-long", "messages", "chatml", {"max_length": None, "assistant_only_loss": True}),
        ("messages-assistant-short", "messages", "chatml", {"max_length": 40, "assistant_only_loss": True}),
        ("chat_pair-all", "chat_pair", "chatml", {"max_length": 112, "completion_only_loss": False}),
        ("chat_pair-assistant", "chat_pair", "chatml", {"max_length": 112, "assistant_only_loss": True}),
        ("text_pair-all", "text_pair", "chatml", {"max_length": 64, "completion_only_loss": False}),
        ("text_pair-long", "text_pair", "chatml", {"max_length": None}),
        ("text-short", "text", "chatml", {"max_length": 3}),
        ("messages-assistant-end", "messages", "chatml",
         {"max_length": 40, "assistant_only_loss": True, "truncation_mode": "keep_end"}),
        ("text_pair-end", "text_pair", "chatml", {"max_length": 12, "truncation_mode": "keep_end"}),
        ("text-end-bfd", "text", "chatml", {"max_length": 12, "truncation_mode": "keep_end", "packing": True}),
        ("messages-inst-assistant", "messages", "inst", {"max_length": 64, "assistant_only_loss": True}),
        ("messages-inst", "messages", "inst", {"max_length": 64}),
        ("chat_pair-inst", "chat_pair", "inst", {"max_length": 96}),
        ("text-inst", "text", "inst", {"max_length": 32}),
        ("text_pair-inst", "text_pair", "inst", {"max_length": 32}),
        ("text_pair-inst-bfd", "text_pair", "inst", {"max_length": 32, "packing": True}),
    ]
    return out


def with_eos(rows: list[dict], eos: str) -> list[dict]:
    return [{k: v.replace("<EOS>", eos) if isinstance(v, str) else v for k, v in row.items()} for row in rows]


def rows_of_trl(rows: list[dict], tokenizer, options: dict) -> list[dict]:
    """The rows that TRL's collator passes to the model, one by one."""
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
    with tempfile.TemporaryDirectory() as folder:
        args = SFTConfig(output_dir=folder, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False,
                         disable_tqdm=True, **options)
        trainer = SFTTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
        out = []
        for row in trainer.train_dataset:
            batch = trainer.data_collator([row])
            ids = batch["input_ids"][0].tolist()
            positions = batch["position_ids"][0].tolist() if "position_ids" in batch else list(range(len(ids)))
            out.append({"input_ids": ids, "labels": batch["labels"][0].tolist(), "position_ids": positions})
        return out


def packing_golden() -> list[dict]:
    """Which pieces [document, begin, size] pack_dataset puts into which row."""
    rng = random.Random(3)
    sets = [
        ([5, 2, 3, 1], 4), ([0, 0, 4, 0, 2, 2, 0], 4), ([1] * 9, 4), ([7, 7, 7], 7), ([20, 1, 8], 7),
        ([rng.choice([0, 1, 2, 3, 4, 5, 6, 9, 12, 16, 17, 40]) for _ in range(300)], 16),
        ([rng.randint(1, 100) for _ in range(300)], 64),
    ]
    out = []
    for lengths, row_length in sets:
        data = Dataset.from_list([{"input_ids": [d * 1000 + t for t in range(n)]} for d, n in enumerate(lengths)])
        for strategy in ("bfd", "bfd_split", "wrapped"):
            rows = []
            for row in pack_dataset(data, row_length, strategy):
                pieces, at = [], 0
                ends = row.get("seq_lengths") or [len(row["input_ids"])]
                for size in ends:
                    piece = row["input_ids"][at : at + size]
                    at += size
                    begin = 0
                    for i in range(1, len(piece) + 1):  # a wrapped row holds several documents
                        if i == len(piece) or piece[i] // 1000 != piece[begin] // 1000:
                            pieces.append([piece[begin] // 1000, piece[begin] % 1000, i - begin])
                            begin = i
                rows.append(pieces)
            out.append({"lengths": lengths, "row_length": row_length, "strategy": strategy, "rows": rows})
    return out


def grouping_golden() -> list[dict]:
    """get_length_grouped_indices, and the permutation that it started from."""
    out = []
    for n, group in ((1, 4), (7, 2), (40, 3), (257, 4), (500, 2)):
        lengths = torch.randint(1, 60, (n,), generator=torch.Generator().manual_seed(n)).tolist()
        permutation = torch.randperm(n, generator=torch.Generator().manual_seed(1)).tolist()
        order = get_length_grouped_indices(lengths, group, generator=torch.Generator().manual_seed(1))
        out.append({"lengths": lengths, "group": group, "permutation": permutation, "order": order})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "golden")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the files that are there")
    args = parser.parse_args()
    disable_progress_bars()
    torch.manual_seed(0)
    files: dict[str, str] = {}
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    tokenizers, inputs = {}, make_inputs()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("chatml", "inst"):
            tokenizers[name] = make_tokenizer(Path(folder) / name, bos=name == "inst")
            for file in sorted((Path(folder) / name).iterdir()):
                files[f"{name}/{file.name}"] = file.read_text(encoding="utf-8")
    listing, expected = [], {}
    for name, file, tokenizer, options in cases():
        print(name, file=sys.stderr)
        rows = with_eos(inputs[file], tokenizers[tokenizer].eos_token)
        input_name = f"{file}.{tokenizer}.jsonl" if file.startswith("text") else f"{file}.jsonl"
        files[f"inputs/{input_name}"] = "".join(dump(row) + "\n" for row in rows)
        listing.append({"name": name, "file": input_name, "tokenizer": tokenizer, "options": options})
        expected[name] = rows_of_trl(rows, tokenizers[tokenizer], options)
    for case in listing:
        files[f"rows/{case['name']}.jsonl"] = "".join(dump(row) + "\n" for row in expected[case["name"]])
    files["cases.json"] = "[\n" + ",\n".join(dump(case) for case in listing) + "\n]\n"
    files["packing.json"] = dump(packing_golden()) + "\n"
    files["grouping.json"] = dump(grouping_golden()) + "\n"
    wrong = 0
    for name, text in files.items():
        path = args.output / name
        if args.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                print("differs:", name)
                wrong += 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{len(files)} files, {wrong} differ" if args.check else f"{len(files)} files written to {args.output}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
