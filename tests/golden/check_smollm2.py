#!/usr/bin/env python3
"""Evaluation loss and greedy answers of a real model folder, by transformers in float32.

    python check_smollm2.py MODEL_DIR [--rows FILE.jsonl] [--adapter DIR] [--assistant_only_loss]
        prints {"eval_loss", "target_tokens", "tokens", "rows", "answers": [...]} as JSON
    python check_smollm2.py MODEL_DIR --qtrain build/release/bin/qtrain
        runs `qtrain eval --json` and `qtrain generate --greedy` on the same rows and compares; exit 1 on a difference

Rows are `messages`, `text`, or `input_ids` with `labels`; `messages` rows that end with an assistant turn are answered
too, without that turn. Packages: requirements.txt.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TALKS = [
    ("What is the capital of France?", "The capital of France is Paris."),
    ("Write one sentence about the sea.", "The sea is wide, deep and never quite still."),
    ("Name three colors.", "Red, green and blue."),
    ("Translate to Spanish: good morning, my friend", "Buenos días, mi amigo."),
    ("How many days are in a week? Answer with a number.", "7"),
    ("def add(a, b):\n    # complete this Python function", "    return a + b"),
]


def default_rows():
    return [{"messages": [dict(role="user", content=q), dict(role="assistant", content=a)]} for q, a in TALKS]


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def chat_labels(tokenizer, messages, ids):
    """Targets in assistant turns only: the tokens that each turn adds to the text before it and its header."""
    labels = [-100] * len(ids)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        render = lambda m, **how: encode(tokenizer, tokenizer.apply_chat_template(m, tokenize=False, **how))
        begin = len(render(messages[:i], add_generation_prompt=True))
        end = len(render(messages[: i + 1]))
        labels[begin:end] = ids[begin:end]
    return labels


def prepare(tokenizer, row, assistant_only):
    if "input_ids" in row:
        return row["input_ids"], row.get("labels", row["input_ids"])
    if "messages" not in row:
        ids = encode(tokenizer, row["text"])
        ids += [tokenizer.eos_token_id] * (ids[-1:] != [tokenizer.eos_token_id])
        return ids, ids
    ids = encode(tokenizer, tokenizer.apply_chat_template(row["messages"], tokenize=False))
    return ids, chat_labels(tokenizer, row["messages"], ids) if assistant_only else ids


@torch.no_grad()
def evaluate(model, tokenizer, rows, assistant_only):
    total = targets = tokens = 0
    for row in rows:
        ids, labels = prepare(tokenizer, row, assistant_only)
        wanted = torch.tensor(labels)[1:]
        logits = model(torch.tensor([ids])).logits[0, :-1].float()
        total += F.cross_entropy(logits, wanted, reduction="sum").item()
        targets += int((wanted != -100).sum())
        tokens += len(ids)
    return dict(eval_loss=total / max(1, targets), target_tokens=targets, tokens=tokens, rows=len(rows))


def question(row):
    """The conversation up to its last assistant turn, or nothing."""
    messages = row.get("messages", [])
    return messages[:-1] if len(messages) > 1 and messages[-1]["role"] == "assistant" else None


@torch.no_grad()
def answer(model, tokenizer, messages, max_new_tokens):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = torch.tensor([encode(tokenizer, text)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=max_new_tokens,
                         repetition_penalty=1.0, pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id)
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)


def reference(args, rows):
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    if args.adapter:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, args.adapter).eval()
    result = evaluate(model, tokenizer, rows, args.assistant_only_loss)
    asked = [q for row in rows if (q := question(row))][: args.answers]
    return result | dict(answers=[answer(model, tokenizer, q, args.max_new_tokens) for q in asked])


def call(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def write_lines(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def ours(args, rows, folder):
    """The same results from the program under test."""
    config = dict(model_name_or_path=str(Path(args.model).resolve()), bf16=False, dtype="float32", packing=False,
                  dataset_name=str(write_lines(folder / "rows.jsonl", rows)), output_dir=str(folder / "out"),
                  eval_dataset_name=str(folder / "rows.jsonl"), assistant_only_loss=args.assistant_only_loss,
                  max_length=8192, per_device_eval_batch_size=4)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    adapter = ["--adapter", args.adapter] if args.adapter else []
    result = json.loads(call([args.qtrain, "eval", folder / "config.json", *adapter, "--json"]))
    asked = [dict(messages=q) for row in rows if (q := question(row))][: args.answers]
    answers = []
    if asked:
        call([args.qtrain, "generate", "--model", args.model, *adapter, "--greedy", "--repetition_penalty", "1.0",
              "--input", write_lines(folder / "asked.jsonl", asked), "--output", folder / "answers.jsonl",
              "--max_new_tokens", args.max_new_tokens])
        answers = [json.loads(line)["completion"] for line in (folder / "answers.jsonl").read_text().splitlines()]
    return result | dict(answers=answers)


def compare(args, want, got):
    """Prints each difference, and returns their number."""
    wrong = [f"{key}: {got.get(key)} here, {want[key]} by transformers"
             for key in ("tokens", "target_tokens", "rows") if got.get(key) != want[key]]
    if abs(got["eval_loss"] - want["eval_loss"]) > args.tolerance:
        wrong.append(f"eval_loss: {got['eval_loss']} here, {want['eval_loss']} by transformers")
    if len(got["answers"]) != len(want["answers"]):
        wrong.append(f"{len(got['answers'])} answers here, {len(want['answers'])} by transformers")
    wrong += [f"answer {i}: {g!r} here, {w!r} by transformers"
              for i, (w, g) in enumerate(zip(want["answers"], got["answers"])) if w.strip() != g.strip()]
    print("\n".join(wrong) or f"same: eval_loss {got['eval_loss']:.6f} (transformers {want['eval_loss']:.6f}), "
          f"{len(want['answers'])} answers")
    return len(wrong)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", help="JSONL; a few conversations without it")
    parser.add_argument("--limit", type=int, default=20, help="rows taken from the file")
    parser.add_argument("--answers", type=int, default=6)
    parser.add_argument("--adapter")
    parser.add_argument("--assistant_only_loss", action="store_true")
    parser.add_argument("--max_new_tokens", type=int, default=24)
    parser.add_argument("--qtrain", help="the program to compare with")
    parser.add_argument("--tolerance", type=float, default=2e-4, help="of the loss, absolute; float32 on both sides")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rows = default_rows()
    if args.rows:
        rows = [json.loads(line) for line in open(args.rows, encoding="utf-8")][: args.limit]
    want = reference(args, rows)
    print(json.dumps(want, ensure_ascii=False, indent=1))
    if not args.qtrain:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return 1 if compare(args, want, ours(args, rows, Path(folder))) else 0


if __name__ == "__main__":
    sys.exit(main())
