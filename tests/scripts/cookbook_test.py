#!/usr/bin/env python3
"""The examples of the cookbook: their data is the same each time, no training row contains what a held-out row asks,
and `qtrain validate` accepts their configs. scripts/cookbook.sh checks the results that they reach.

    python3 tests/scripts/cookbook_test.py"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [ROOT / f"build/{preset}/bin/qtrain" for preset in ("emulated", "cpu", "release")]
BUILT = sorted((p for p in PROGRAMS if p.exists()), key=lambda p: p.stat().st_mtime)
EXAMPLES = sorted(p.parent for p in ROOT.glob("examples/*/limits.txt"))


def write_data(example, folder):
    """{file name: contents}"""
    subprocess.run([sys.executable, example / "data.py", "--output", folder], check=True, stdout=subprocess.DEVNULL)
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def commands_of(example):
    return re.search(r"```sh\n(.*?)```", (example / "README.md").read_text(encoding="utf-8"), re.S)[1].splitlines()


def write_small_model(folder):
    """A Llama config without weights, for a tokenizer of 400 entries."""
    shutil.copytree(ROOT / "tests/data/golden/chatml", folder)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 400, "hidden_size": 32,
              "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def give_weights(folder):
    """The random weights that a full run would start from; adapters need weights."""
    rows, output = folder / "rows.jsonl", folder / "output"
    rows.write_text('{"text": "a row"}\n', encoding="utf-8")
    config = {"model_name_or_path": str(folder), "random_init": True, "dataset_name": str(rows), "max_steps": 1,
              "learning_rate": 0, "save_strategy": "no", "device": "cpu", "output_dir": str(output)}
    (folder / "run.json").write_text(json.dumps(config), encoding="utf-8")
    subprocess.run([BUILT[-1], folder / "run.json", "--quiet"], check=True, capture_output=True)
    shutil.copy(output / "model.safetensors", folder)


class Cookbook(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def test_has_its_five_jobs(self):
        self.assertEqual([example.name for example in EXAMPLES],
                         ["chat_lora", "classification", "continued_pretraining", "qlora", "tool_calling"])

    def test_data_is_the_same_each_time_and_holds_out_what_it_asks(self):
        for example in EXAMPLES:
            with self.subTest(example.name):
                data = write_data(example, self.folder / example.name)
                self.assertEqual(data, write_data(example, self.folder / example.name))
                self.assertEqual(sorted(data), ["eval.jsonl", "train.jsonl"])
                self.assertLess(sum(map(len, data.values())), 1_000_000)
                seen = {self.question(line) for line in data["train.jsonl"].splitlines()}
                for line in data["eval.jsonl"].splitlines():
                    self.assertNotIn(self.question(line), seen)

    @staticmethod
    def question(line):
        row = json.loads(line)
        turns = row.get("messages") or row.get("prompt")
        return row["text"] if turns is None else [t["content"] for t in turns if t["role"] == "user"][-1]

    def test_commands_are_those_of_the_folder(self):
        for example in EXAMPLES:
            with self.subTest(example.name):
                config = f"examples/{example.name}/config.json"
                commands = commands_of(example)
                self.assertEqual(commands[0], f"python3 examples/{example.name}/data.py --output examples/{example.name}/data")
                self.assertTrue(commands[1].startswith(f"qtrain eval {config} --base"))
                self.assertTrue(commands[2].startswith(f"qtrain {config} "))
                self.assertTrue(commands[3].startswith(f"qtrain eval {config}"))

    @unittest.skipUnless(BUILT, "qtrain is not built")
    def test_configs_are_valid(self):
        write_small_model(self.folder / "model")
        give_weights(self.folder / "model")
        for example in EXAMPLES:
            with self.subTest(example.name):
                data = self.folder / example.name
                write_data(example, data)
                values = {"model_name_or_path": self.folder / "model",
                          "dataset_name": data / "train.jsonl", "eval_dataset_name": data / "eval.jsonl",
                          "output_dir": self.folder / "output", "max_length": 2048}
                checked = subprocess.run(
                    [BUILT[-1], "validate", f"examples/{example.name}/config.json", "--json",
                     *(f"{key}={value}" for key, value in values.items())],
                    cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True)
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
                self.assertTrue(json.loads(checked.stdout)["valid"])


if __name__ == "__main__":
    unittest.main()
