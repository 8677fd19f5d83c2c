#!/usr/bin/env python3
"""Writes tests/train/goldens/named_tokens.json: what TRL saves where a config sets eos_token or pad_token.

    make_named_token_goldens.py            the file
    make_named_token_goldens.py --check    compares with the file that is there

Needs trl (1.16), transformers (5.23), datasets and torch.
"""

import json
import sys
import tempfile
from pathlib import Path

from datasets import Dataset, disable_progress_bars
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

HERE = Path(__file__).parent
FILE = HERE / "goldens" / "named_tokens.json"
TOKENIZER = HERE.parent / "data" / "golden" / "chatml"  # <|endoftext|> 0, <|im_start|> 1, <|im_end|> 2
# The config's values, and eos_token_id in the folder's config.json and generation_config.json ("": no such file).
CASES = [
    ({"eos_token": "<|endoftext|>"}, 2, 2),
    ({"eos_token": "<|endoftext|>"}, 2, ""),
    ({"eos_token": "<|endoftext|>", "pad_token": "<|im_start|>"}, 2, [2, 5]),
    ({"eos_token": "<|endoftext|>"}, [2, 0], [2, 0]),
    ({"eos_token": "<|im_end|>"}, 7, None),
    ({"pad_token": "<|endoftext|>"}, 2, 2),
    ({"eos_token": "<|nothing|>"}, 2, 2),
    ({"pad_token": "<|nothing|>"}, 2, 2),
]


def saved(asked: dict, folder: Path, model_eos, generation_eos) -> dict:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        eos_token_id=model_eos, bos_token_id=None))
    model.save_pretrained(folder / "base")
    generation = folder / "base/generation_config.json"
    if generation_eos == "":
        generation.unlink()
    else:
        generation.write_text(json.dumps({"eos_token_id": generation_eos}))
    args = SFTConfig(output_dir=str(folder / "out"), report_to=[], use_cpu=True, bf16=False, disable_tqdm=True,
                     gradient_checkpointing=False, **asked)
    trainer = SFTTrainer(model=AutoModelForCausalLM.from_pretrained(folder / "base"), args=args,
                         train_dataset=Dataset.from_list([{"text": "a"}]), processing_class=tokenizer)
    trainer.save_model(folder / "out")
    read = lambda name, keys: {k: json.loads((folder / "out" / name).read_text()).get(k) for k in keys}
    names = sorted(asked)
    ids = [f"{name}_id" for name in names]
    return {"row": trainer.train_dataset[0]["input_ids"], "tokenizer_config.json": read("tokenizer_config.json", names),
            "config.json": read("config.json", ids), "generation_config.json": read("generation_config.json", ids)}


def main() -> int:
    disable_progress_bars()
    out = []
    for asked, model_eos, generation_eos in CASES:
        case = {"asked": asked, "model": model_eos, "generation": generation_eos}
        with tempfile.TemporaryDirectory() as folder:
            try:
                case["saved"] = saved(asked, Path(folder), model_eos, generation_eos)
            except ValueError as error:
                case["error"] = type(error).__name__
        out.append(case)
    text = "[\n" + ",\n".join(json.dumps(case) for case in out) + "\n]\n"
    if "--check" in sys.argv[1:]:
        print("agrees" if FILE.read_text() == text else "differs")
        return FILE.read_text() != text
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
