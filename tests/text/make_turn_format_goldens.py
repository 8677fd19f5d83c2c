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

BOS, EOS = "<s>", "</s>"
THOUGHTS = "<think>\n\n</think>\n\n"
FACTORY = """alpaca cpm4 deepseek deepseek3 deepseekr1 default exaone falcon_h1 granite3 granite4 intern_s1 lfm2 llama2
    llama4 mimo ministral mistral mistral_small moonlight olmo openchat opencoder phi phi4_mini qwen qwen2_vl qwen3
    qwen3_nothink smollm smollm2 starchat vicuna yi zephyr""".split()
AXOLOTL = "deepseek_v2 falcon_h1 mistral_v1 phi_3 phi_35 qwen_25".split()
CASES = {
    "two_turns": [("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")],
    "system": [("system", "it's S"), ("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")],
    "one_turn": [("system", "S"), ("user", "q1"), ("assistant", "a1")],
}


def registered(folder):
    """The calls of register_template, their slots as lists."""
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
    """As Template._encode and its heirs put it together; also the answers, which are learned."""
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


def axolotl_text(folder, name, messages):
    source = (folder / f"utils/chat_templates/templates/{name}.jinja").read_text()
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    chat = [{"role": role, "content": content} for role, content in messages]
    return environment.from_string(source).render(messages=chat, bos_token=BOS, eos_token=EOS)


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
            text = axolotl_text(axolotl, name, messages)
            lines.append({"name": f"axolotl_{name}", "case": case, "messages": chat, "text": text})
    out = Path(__file__).parent / "goldens/template/turn_formats.jsonl"
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


main()
