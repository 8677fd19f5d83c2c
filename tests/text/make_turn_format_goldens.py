#!/usr/bin/env python3
"""Writes goldens/template/turn_formats.jsonl: what conversations become in the chat formats of LLaMA-Factory and
axolotl, by their own tables. Needs jinja2 and the unpacked sources of both:

    make_turn_format_goldens.py LLAMAFACTORY_FOLDER AXOLOTL_FOLDER
"""

import ast
import json
import sys
from pathlib import Path

import jinja2
import jinja2.nodes
from jinja2.ext import Extension

BOS, EOS = "<s>", "</s>"
THOUGHTS = "<think>\n\n</think>\n\n"
FACTORY = """alpaca cpm4 deepseek deepseek3 deepseekr1 default exaone falcon_h1 granite3 granite4 intern_s1 lfm2 llama2
    llama4 mimo ministral mistral mistral_small moonlight olmo openchat opencoder phi phi4_mini qwen qwen2_vl qwen3
    qwen3_nothink smollm smollm2 starchat vicuna yi zephyr""".split()
AXOLOTL = """deepseek_v2 deepseek_v3 exaone falcon_h1 llama4 metharme mistral_v1 mistral_v2v3 mistral_v3_tekken
    mistral_v7_tekken nemotron_h phi_3 phi_35 phi_4 qwen2_vl qwen3 qwen_25""".split()
# Formats that have a different name here.
OTHERS = dict(alpaca="alpaca", aya="command_r", chatml="chatml", cohere="command_r", gemma="gemma", gemma3="gemma",
              gemma3n="gemma", llama3="llama3", pixtral="axolotl_mistral_v3_tekken", qwen3_5="axolotl_qwen3")
CASES = {
    "two_turns": [("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")],
    "system": [("system", "it's S"), ("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")],
    "one_turn": [("system", "S"), ("user", "q1"), ("assistant", "a1")],
}
# Additional conversations for axolotl's templates, which are rendered whole.
MORE = {
    "blanks": [("system", " S "), ("user", " q1\n"), ("assistant", "\n a1 ")],
    "empty_system": [("system", ""), ("user", "q1"), ("assistant", "a1")],
    "thoughts": [("user", "q1"), ("assistant", "<think>\nt1\n</think>\n\na1"), ("user", "q2"),
                 ("assistant", "<think>\nt2\n</think>\n\na2")],
    "answers_in_a_row": [("user", "q1"), ("assistant", "<think>\nt1\n</think>\n\na1"), ("assistant", "a2"),
                         ("assistant", "a3")],
    "late_system": [("user", "q1"), ("assistant", "a1"), ("system", "LATE"), ("user", "q2"), ("assistant", "a2")],
    "question": [("system", "S"), ("user", "q1"), ("assistant", "a1"), ("user", "q2")],
    "prompt": [("system", "S"), ("user", "q1"), ("assistant", "a1"), ("user", "q2")],  # an answer is wanted
}
NOW = "2024-07-25"  # of golden_support.cpp


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def registered(folder):
    """The calls of register_template, with their slots as lists."""
    tree = ast.parse((folder / "data/template.py").read_text())
    calls = [n.value for n in tree.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    found = {}
    for call in calls:
        if getattr(call.func, "id", "") != "register_template":
            continue
        values = {}
        for k in call.keywords:
            if k.arg.startswith("format_") and isinstance(k.value, ast.Call):
                slots = [s.value for s in k.value.keywords if s.arg == "slots"]
                values[k.arg] = ast.literal_eval(slots[0]) if slots else None
            elif k.arg == "template_class":
                values[k.arg] = k.value.id
            elif k.arg != "mm_plugin":
                values[k.arg] = ast.literal_eval(k.value)
        found[values["name"]] = values
    return found


def filled(slots, content=""):
    text = ""
    for slot in slots:
        if isinstance(slot, set):
            text += BOS if "bos_token" in slot else EOS
        else:
            text += slot.replace("{{content}}", content, 1)
    return text


def factory_text(template, messages):
    """The text as Template._encode and its subclasses compose it, and the answers, which are learned."""
    kind = template.get("template_class", "Template")
    question = template.get("format_user", ["{{content}}"])
    answer = template.get("format_assistant", ["{{content}}", {"eos_token"}])
    system = template.get("format_system", ["{{content}}"])
    words = template.get("default_system", "")
    if messages[0][0] == "system":
        words, messages = messages[0][1] or words, messages[1:]
    text, answers = filled(template.get("format_prefix", [])), []
    first = filled(system, words) if words else ""
    if kind != "Llama2Template":
        text, first = text + first, ""
    for role, content in messages:
        if role == "user":
            text, first = text + filled(question, first + content), ""
        else:
            thought = THOUGHTS if kind == "ReasoningTemplate" else ""
            answers.append(thought + filled(answer, content))
            text += answers[-1]
    return text, answers


class Generation(Extension):
    """Ignores the tags of the blocks in which transformers marks the assistant's text."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def axolotl_text(folder, name, messages, prompt):
    """None if the template rejects the conversation."""
    source = (folder / f"utils/chat_templates/templates/{name}.jinja").read_text()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation])
    environment.globals.update(raise_exception=refuse, strftime_now=lambda form: NOW if form == "%Y-%m-%d" else "")
    chat = [{"role": role, "content": content} for role, content in messages]
    try:
        return environment.from_string(source).render(messages=chat, bos_token=BOS, eos_token=EOS,
                                                      add_generation_prompt=prompt)
    except Refused:
        return None


def axolotl_lines(folder, name, ours):
    cases = CASES | MORE if ours == f"axolotl_{name}" else {"system": CASES["system"], "blanks": MORE["blanks"]}
    for case, messages in cases.items():
        text = axolotl_text(folder, name, messages, prompt=case == "prompt")
        moved = case == "late_system" and name in ("deepseek_v3", "llama4")  # elsewhere, or written otherwise
        if text is None or moved or ("LATE" not in text and case == "late_system"):
            continue
        chat = [{"role": role, "content": content} for role, content in messages]
        prompt = {"add_generation_prompt": True} if case == "prompt" else {}
        yield {"name": ours, "of": name, "case": case, "messages": chat, **prompt, "text": text}


def main():
    factory, axolotl = Path(sys.argv[1]), Path(sys.argv[2])
    templates = registered(factory)
    lines = []
    for case, messages in CASES.items():
        chat = [{"role": role, "content": content} for role, content in messages]
        for name in FACTORY:
            text, answers = factory_text(templates[name], messages)
            line = {"name": f"llamafactory_{name}", "case": case, "messages": chat, "text": text}
            lines.append({**line, "answers": answers})
    for name in AXOLOTL:
        lines += axolotl_lines(axolotl, name, f"axolotl_{name}")
    for name, ours in OTHERS.items():
        lines += axolotl_lines(axolotl, name, ours)
    out = Path(__file__).parent / "goldens/template/turn_formats.jsonl"
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


main()
