#!/usr/bin/env python3
"""Writes tests/text/goldens/training_templates: rows that TRL makes with the stock chat templates it knows.

    make_training_template_goldens.py            the files
    make_training_template_goldens.py --check    compares with the files that are there

Needs trl (1.16), transformers (5.23), tokenizers, datasets and torch.
"""

import argparse
import datetime
import hashlib
import json
import os
import sys
import tempfile
from importlib import resources
from pathlib import Path

os.environ["TZ"] = "UTC"

from datasets import Dataset, disable_progress_bars
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils
from trl import SFTConfig, SFTTrainer

FOLDER = Path(__file__).parent / "goldens" / "training_templates"
NOW = datetime.datetime(2024, 7, 25, 10, 0, 0)
FAMILIES = (
    "llama3 cohere cohere2 gemma gemma3 lfm2 lfm2_v2 qwen2_5 qwen3 qwen3_instruct_2507 qwen3_5_think qwen3_5_nothink "
    "qwen3_6 qwen3_8 phi3 phi3_5 deepseek_r1_distill deepseekv3 glm4moe gptoss nemotron_3_nano nemotron_3_super "
    "nemotron_3_ultra nemotron_3_5_lightning muse_glimmer"
).split()
SPECIAL = (
    "<s> <pad> <|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <tool_response> "
    "</tool_response> <|start_header_id|> <|end_header_id|> <|eot_id|> <|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> "
    "<|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|> <|START_RESPONSE|> <|END_RESPONSE|> <start_of_turn> "
    "<end_of_turn> <|tool_list_start|> <|tool_list_end|> <|tool_call_start|> <|tool_call_end|> "
    "<|tool_response_start|> <|tool_response_end|> <|system|> <|user|> <|assistant|> <|end|> <|observation|> [gMASK] "
    "<sop> <arg_key> </arg_key> <arg_value> </arg_value> <｜User｜> <｜Assistant｜> <｜end▁of▁sentence｜> "
    "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> "
    "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜> <|start|> <|message|> "
    "<|channel|> <|return|> <|call|> <|eot|> <|eom|>"
).split()
# In Phi-3's tokenizer, these tokens include the following white space.
RSTRIP = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
CORPUS = [
    "You are a helpful assistant. Answer in one sentence.\n\nWhat is the capital of France?\n\nIt is Paris.\n",
    "Reasoning: low\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n",
    '{"name": "get_weather", "arguments": {"city": "Paris"}}\n\n  The weather in Paris is sunny.\n',
] * 4


class FrozenClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FrozenClock


# A template with generation tags is used unchanged. Its answers begin and end within tokens.
OWN = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' sun' }}{% generation %}{{ m.content }}"
    "{% endgeneration %}{{ 'ny' }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


def template_of(name: str) -> str:
    if name == "own":
        return OWN
    return (resources.files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def make_tokenizer(rstrip: bool) -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    raw.add_special_tokens([AddedToken(t, special=True, normalized=False, rstrip=rstrip and t in RSTRIP)
                            for t in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="<|endoftext|>", pad_token="<pad>")


def conversations() -> dict[str, dict]:
    system = {"role": "system", "content": "Be brief."}
    user = lambda text="What is 2+2?": {"role": "user", "content": text}
    say = lambda text="It is 4.", **more: {"role": "assistant", "content": text, **more}
    tool = lambda text="sunny": {"role": "tool", "name": "get_weather", "content": text}
    call = lambda arguments: {"type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    arguments = {"city": "Paris"}
    tools = json.dumps([{"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])
    thought = "<think>\nTwo and two.\n</think>\n\nIt is 4."
    chat = lambda *turns, **more: {"messages": list(turns), **more}
    pair = lambda prompt, *completion, **more: {"prompt": prompt, "completion": list(completion), **more}
    return {
        "single": chat(user(), say()),
        "system": chat(system, user(), say()),
        "two_turns": chat(user(), say(), user("And 3+3?"), say("Six, naïve 🦊")),
        "three_turns": chat(system, user("a"), say("b"), user("c"), say("d"), user("e"), say("f")),
        "reasoning": chat(user(), say(reasoning_content="Two and two.")),
        "reasoning_turns": chat(user(), say(reasoning_content="\nTwo.\n\n"), user("More?"),
                                say("\n\nNo.\n", reasoning_content=" Well. ")),
        "reasoning_earlier": chat(user(), say(reasoning_content="Two and two."), user("More?"), say("No.")),
        "thinking_key": chat(user(), say("x", thinking="Hm."), user("More?"), say("No.", thinking="Hm, no.")),
        "inline": chat(user(), say(thought)),
        "inline_turns": chat(user(), say(thought), user("More?"), say(thought)),
        "closed_only": chat(user(), say("Two and two.</think>It is 4.")),
        "opened_only": chat(user(), say("<think>Two and two."), user("More?"), say("<think>No")),
        "call_object": chat(user(), say("", tool_calls=[call(arguments)])),
        "call_string": chat(user(), say("", tool_calls=[call(json.dumps(arguments))])),
        "call_none": chat(user(), say(None, tool_calls=[call(arguments)])),
        "call_none_string": chat(user(), say(None, tool_calls=[call(json.dumps(arguments))])),
        "call_text": chat(user(), say("Let me look.", tool_calls=[call(arguments)])),
        "calls": chat(user(), say("", tool_calls=[call(arguments), call({"city": "Rome"})])),
        "calls_string": chat(user(), say(None, tool_calls=[call('{"city": "Paris"}'), call('{"city": "Rome"}')])),
        "tool": chat(user(), say("", tool_calls=[call(arguments)]), tool(), say("Sunny.")),
        "tool_string": chat(user(), say("", tool_calls=[call(json.dumps(arguments))]), tool(), say("Sunny.")),
        "tool_defined": chat(system, user(), say("", tool_calls=[call(arguments)]), tool(), say("Sunny."), tools=tools),
        "tool_reasoning": chat(user(), say("", reasoning_content="Look.", tool_calls=[call(arguments)]), tool(),
                               say("Sunny.", reasoning_content="Seen."), user("Thanks"), say("Welcome")),
        "tools_two": chat(user(), say("", tool_calls=[call(arguments)]), tool(), tool("warm"), say("Sunny."),
                          user("Thanks"), say("Welcome")),
        "tool_open": chat(user(), say("", tool_calls=[call(arguments)]), tool()),
        "tool_alone": chat(user(), tool(), say("Sunny.")),
        "tool_after_text": chat(user(), say("Hm."), tool(), say("Sunny.")),
        "tools_only": chat(user(), say(), tools=tools),
        "empty": chat(user(), say("")),
        "empty_turns": chat(user(), say(""), user("More?"), say("")),
        "spaces": chat(user("  q \n"), say("  It is 4. \n"), user("\tmore"), say("\n\nNo\n\n")),
        "spaces_only": chat(user(), say(" \n ")),
        "two_answers": chat(user(), say("One."), say("Two.")),
        "two_questions": chat(user("One?"), user("Two?"), say("Yes.")),
        "ends_with_user": chat(user(), say(), user("More?")),
        "no_answer": chat(user()),
        "greeting": chat(say("Hello!"), user(), say()),
        "system_later": chat(user(), say(), {"role": "system", "content": "Be long."}, user("More?"), say("No.")),
        "other_role": chat(user(), {"role": "critic", "content": "Bad."}, say()),
        "parts": chat(*[{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]}
                        for m in (user(), say(), user("More?"), say("No."))]),
        "no_thinking": chat(user(), say(), user("More?"), say("No."), chat_template_kwargs={"enable_thinking": False}),
        "forget_thinking": chat(user(), say(reasoning_content="Two."), user("More?"), say("No."),
                                chat_template_kwargs={"preserve_thinking": False}),
        "keep_thinking": chat(user(), say(reasoning_content="Two."), user("More?"), say("No."),
                              chat_template_kwargs={"preserve_thinking": True, "truncate_history_thinking": False}),
        "crossing": chat(user("It is"), say("ny. sun"), user("And"), say("ny 🦊")),
        "pair": pair([user()], say()),
        "pair_turns": pair([system, user(), say("b"), user("c")], say("d")),
        "pair_reasoning": pair([user()], say(reasoning_content="Two and two.")),
        "pair_inline": pair([user(), say(thought), user("c")], say(thought)),
        "pair_tool": pair([user(), say("", tool_calls=[call(arguments)]), tool()], say("Sunny.")),
        "pair_call": pair([user()], say("", tool_calls=[call(arguments)]), tools=tools),
        "pair_two": pair([user()], say("One."), user("c"), say("Two.")),
        "pair_spaces": pair([user()], say("  It is 4. ")),
        "pair_empty": pair([user()], say("")),
    }


MODES = {
    "assistant": {"assistant_only_loss": True},
    "all": {"assistant_only_loss": True, "completion_only_loss": False},
    "plain": {"assistant_only_loss": False},
}


def cases_of(mode: str, name: str) -> bool:
    return {"assistant": True, "all": name.startswith("pair"), "plain": name in ("three_turns", "pair_turns")}[mode]


def rows_of_trl(family: str, folder: str) -> list[dict]:
    tokenizer = make_tokenizer(rstrip=family.startswith("phi3"))
    tokenizer.chat_template = template_of(family)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1))
    out = []
    for mode, options in MODES.items():
        args = SFTConfig(output_dir=folder, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False,
                         disable_tqdm=True, max_length=None, **options)
        for name, row in conversations().items():
            if not cases_of(mode, name):
                continue
            first = Dataset.from_list([conversations()["pair" if "prompt" in row else "single"]])
            trainer = SFTTrainer(model=model, args=args, train_dataset=first, processing_class=tokenizer)
            result = {"case": name, "mode": mode}
            try:
                made = trainer._prepare_dataset(Dataset.from_list([row]), tokenizer, args, False, None, "train")[0]
                result.update(described(tokenizer, made["input_ids"], made["labels"]))
            except Exception as error:  # whatever Python raises, the row is refused
                result["error"] = type(error).__name__
            out.append(result)
    return out


def described(tokenizer, ids: list[int], labels: list[int]) -> dict:
    """The text in alternately masked and learned parts, beginning with a masked one, and a hash of the ids."""
    assert all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    parts, learned = [[]], False
    for token, label in zip(ids, labels, strict=True):
        if (label != -100) != learned:
            learned = not learned
            parts.append([])
        parts[-1].append(token)
    return {"parts": [tokenizer.decode(part) for part in parts],
            "tokens": hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the files that are there")
    args = parser.parse_args()
    disable_progress_bars()
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    files = {"conversations.jsonl": "".join(dump({"name": n, "row": r}) + "\n" for n, r in conversations().items())}
    with tempfile.TemporaryDirectory() as folder:
        make_tokenizer(rstrip=False).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            compact = json.loads((Path(folder) / name).read_text(encoding="utf-8"))
            files[f"tokenizer/{name}"] = dump(compact) + "\n"
        for family in [*FAMILIES, "own"]:
            print(family, file=sys.stderr)
            files[f"templates/{family}.jinja"] = template_of(family)
            files[f"rows/{family}.jsonl"] = "".join(dump(row) + "\n" for row in rows_of_trl(family, folder))
    wrong = 0
    for name, text in files.items():
        path = FOLDER / name
        if args.check:
            wrong += not path.exists() or path.read_text(encoding="utf-8") != text
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{len(files)} files, {wrong} differ" if args.check else f"{len(files)} files written to {FOLDER}")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
