#!/usr/bin/env python3
"""Renders chat templates with transformers and writes what the template tests compare with.

    make_template_goldens.py                      the files of tests/text/goldens/template
    make_template_goldens.py --check              the same, compared with the files that are there
    make_template_goldens.py --templates DIR OUT  every .jinja of DIR with every conversation, one JSON case a line

Needs transformers (5.23), trl (1.16) and jinja2 (3.1).
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import time
from importlib import resources

os.environ["TZ"] = "UTC"
time.tzset()

import jinja2
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

FOLDER = pathlib.Path(__file__).parent / "goldens" / "template"
NOW = datetime.datetime(2024, 7, 25, 10, 0, 0)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class FrozenClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second)


chat_template_utils.datetime = FrozenClock


def to_bytes(text, index):
    return len(text[:index].encode())


def render(template, case):
    """The output of apply_chat_template(tokenize=False), and the byte ranges of the generation blocks."""
    extra = case.get("extra") or {}
    options = {
        "tools": case.get("tools"),
        "documents": case.get("documents"),
        "add_generation_prompt": case.get("add_generation_prompt", False),
    }
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")), **TOKENS)
    messages = json.loads(json.dumps(case["messages"]))
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **options, **extra)
    without_nulls = [{k: v for k, v in m.items() if v is not None} for m in messages]
    (tracked,), (indices,) = chat_template_utils.render_jinja_template(
        [without_nulls], chat_template=template, return_assistant_tokens_mask=True, **options, **{**TOKENS, **extra}
    )
    assert tracked == text
    return {"text": text, "generated": [[to_bytes(text, b), to_bytes(text, e)] for b, e in indices]}


def expectation(template, case):
    try:
        return render(template, case)
    except jinja2.TemplateSyntaxError as e:
        return {"error": "syntax", "message": str(e), "line": e.lineno}
    except Exception as e:  # whatever Python raises, the template is refused
        return {"error": type(e).__name__, "message": str(e)}


def conversations():
    return json.loads((FOLDER / "conversations.json").read_text())


def cross(folder, picked=None):
    for file in sorted(folder.glob("*.jinja")):
        template = file.read_text()
        for name, case in conversations().items():
            if picked and name not in picked:
                continue
            yield {"template": file.name, "case": name, **expectation(template, case)}


# Our named templates, the models' own templates that are equivalent for plain conversations (from TRL), and those
# conversations.
NAMED = {
    "chatml": ("qwen2_5", ["turns"]),
    "llama3": ("llama3", ["single", "pair", "system", "turns", "turns_done"]),
    "gemma": ("gemma", ["single", "pair", "turns_done"]),
    "phi3": ("phi3", ["single", "pair", "system", "turns", "turns_done"]),
    "deepseek": ("deepseekv3", ["pair", "system", "turns_done"]),
    "command_r": ("cohere", ["single", "pair", "system", "turns", "turns_done"]),
}


def named_cases():
    for name, (model, cases) in NAMED.items():
        template = (resources.files("trl") / "chat_templates" / f"{model}.jinja").read_text()
        for case in cases:
            yield {"name": name, "case": case, "text": render(template, conversations()[case])["text"]}


def small_cases(file):
    """Language features one by one: `source` and `extra` (variables) of each line are a case."""
    for line in file.open():
        case = {key: value for key, value in json.loads(line).items() if key in ("source", "extra")}
        full = {"messages": [{"role": "user", "content": "hi"}], "extra": case.get("extra")}
        yield {**case, **expectation(case["source"], full)}


def dump_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--templates", nargs=2, metavar=("DIR", "OUT"))
    args = parser.parse_args()
    if args.templates:
        rows = []
        for row in cross(pathlib.Path(args.templates[0])):
            source = (pathlib.Path(args.templates[0]) / row["template"]).read_text()
            rows.append({"source": source, "tokens": TOKENS, "input": conversations()[row["case"]], **row})
        pathlib.Path(args.templates[1]).write_text(dump_lines(rows))
        return 0
    files = {
        "families.jsonl": dump_lines(cross(FOLDER / "templates")),
        "named.jsonl": dump_lines(named_cases()),
    }
    for file in sorted((FOLDER / "language").rglob("*.jsonl")):
        files[file.relative_to(FOLDER)] = dump_lines(small_cases(file))
    wrong = 0
    for name, text in files.items():
        path = FOLDER / name
        if args.check:
            wrong += not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    print("goldens differ" if wrong else "goldens agree" if args.check else "goldens written")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
