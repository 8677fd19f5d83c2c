#!/usr/bin/env python3
"""Trains LoRA adapters, exports each alone and merged into its model, and compares the answers of llama.cpp with both.

    python tests/convert/check_gguf_adapter.py --llama PYTHON [--program build/release/bin/qtrain] [MODEL ...]

MODEL is a model folder with a tokenizer or a GGUF file; without one, the small models of tests/convert/goldens/gguf, one of
each family. --llama is an interpreter with llama-cpp-python (built from its source archive on PyPI: `pip install --no-binary
llama-cpp-python llama-cpp-python`; tested with 0.3.36). The interpreter of this script needs torch, transformers and peft.

Everything is in float32. What has to agree:
- logits at every position of prompt and answer: PEFT, llama.cpp with --lora, llama.cpp with the merged model
- greedy answers: PEFT, llama.cpp in both ways, `qtrain generate --adapter`
- `qtrain serve`: the 20 largest log-probabilities at every token of the answers, with those of PEFT
For each difference, this prints the largest over all prompts, how far the adapter moves a logit, and how far llama.cpp
is from transformers without the adapter.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

GOLDENS = Path(__file__).parent / "goldens/gguf"
PROMPTS = ["The capital of France is", "Once upon a time", "2 + 2 =", "Water boils at", "In 1969, the first"]
ROWS = ["The film of 1999 was seen by many people.", "A year of water is a year of bread.", "Two and two are five today.",
        "Once upon a time there was a lighthouse on a hill.", "Water boils at the foot of the mountain."]
COUNT, TOP = 16, 20
# Bound on the difference of logits relative to the largest, beyond the error of llama.cpp's model without an adapter
# (which looks up GELU in a float16 table). The summation order in float32 causes much smaller differences.
BOUND = 2e-5
ADAPTERS = {"lora": dict(lora_r=8, lora_alpha=16),
            "rslora": dict(lora_r=4, lora_alpha=8, use_rslora=True)}
EXPERTS = {"mixtral", "qwen3_moe"}  # GGUF cannot express adapters of experts
LLAMA = """
import json, sys
import numpy as np
from llama_cpp import Llama
job = json.load(open(sys.argv[1]))
out = {}
for name, (model, lora) in job["models"].items():  # the model without an adapter gets the answers of the first one
    llm = Llama(model, lora_path=lora, n_ctx=256, n_threads=2, logits_all=True, type_k=0, type_v=0, flash_attn=False, verbose=False)
    for i, ids in enumerate(job["prompts"]):
        llm.reset()
        llm.eval(ids)
        answer = [] if lora or name == "merged" else out[f"lora {i} answer"].tolist()
        if answer:
            llm.eval(answer)
        while len(answer) < job["count"]:
            answer.append(int(np.argmax(llm.scores[llm.n_tokens - 1])))
            llm.eval(answer[-1:])
        out[f"{name} {i} answer"] = np.array(answer)
        out[f"{name} {i} logits"] = np.array(llm.scores[:llm.n_tokens])
    llm.close()
np.savez(sys.argv[2], **out)
"""


def run(*command) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]}\nended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def train(program: str, model: Path, adapter: dict, kind: str, output: Path) -> None:
    rows = output.with_suffix(".jsonl")
    rows.write_text("".join(json.dumps({"text": t}) + "\n" for t in ROWS))
    small = (model / "model.safetensors").stat().st_size < 1 << 20
    config = dict(model_name_or_path=str(model), dataset_name=str(rows), output_dir=str(output), use_peft=True, dtype="float32",
                  lora_target_modules=["q_proj", "k_proj", "v_proj", "o_proj"] if kind in EXPERTS else "all-linear",
                  learning_rate=0.05 if small else 1e-3, max_steps=12, per_device_train_batch_size=5, save_strategy="no",
                  max_length=64, device="cpu", **adapter)
    file = output.with_suffix(".json")
    file.write_text(json.dumps(config))
    run(program, file, "--quiet")


def logits_of_peft(model: Path, adapter: Path, prompts: list) -> dict:
    """For each prompt, PEFT's greedy answer, and its logits [tokens, vocabulary] with and without the adapter."""
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
    tuned = PeftModel.from_pretrained(base, adapter).eval()
    out = {}
    with torch.no_grad():
        for i, ids in enumerate(prompts):
            sequence = list(ids)
            for _ in range(COUNT):
                sequence.append(int(tuned(torch.tensor([sequence])).logits[0, -1].argmax()))
            row = torch.tensor([sequence])
            out[i] = dict(answer=sequence[len(ids):], logits=tuned(row).logits[0].double().numpy())
            with tuned.disable_adapter():
                out[i]["base"] = tuned(row).logits[0].double().numpy()
    return out


def served(program: str, model: Path, adapter: Path, prompts: list) -> list:
    """For each prompt, the texts of the answer's tokens, and the largest log-probabilities [tokens, TOP]."""
    server = subprocess.Popen([program, "serve", "--json", "--quiet", "--port", "0", "--model", str(model), "--dtype", "float32",
                               "--adapter", f"tuned={adapter}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        if not line:
            sys.exit("qtrain does not serve")
        url = json.loads(line)["url"].rstrip("/").removesuffix("/v1")
        answers = []
        for ids in prompts:
            body = dict(model="tuned", prompt=ids, max_tokens=COUNT, temperature=0, logprobs=TOP)
            request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as reply:
                answers.append(json.load(reply)["choices"][0]["logprobs"])
        return answers
    finally:
        server.terminate()
        server.wait()


def decode(program: str, model: Path, answers: list, scratch: Path) -> list:
    file = scratch / "answers.jsonl"
    file.write_text("".join(json.dumps([int(t) for t in a]) + "\n" for a in answers))
    return [json.loads(line) for line in
            run(program, "tokenize", "--model", model, "--input", file, "--decode", "--no_special").splitlines()]


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def until_end(answer: list, ends: set) -> list:
    for i, token in enumerate(answer):
        if token in ends:
            return answer[:i]
    return answer


def ends_of(model: Path) -> set:
    ends = set()
    for name in ("config.json", "generation_config.json"):
        if (model / name).exists():
            value = json.loads((model / name).read_text()).get("eos_token_id")
            ends |= set(value) if isinstance(value, list) else {value}
    return ends


def check(arguments, model: Path, name: str, scratch: Path) -> int:
    program, kind = arguments.program, json.loads((model / "config.json").read_text())["model_type"]
    (scratch / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))
    prompts = [json.loads(line) for line in
               run(program, "tokenize", "--model", model, "--input", scratch / "prompts.jsonl").splitlines()]
    run(program, "export", "--quiet", "--model", model, "--output", scratch / "base.gguf", "--type", "f32")
    wrong = 0
    for variant, options in ADAPTERS.items():
        adapter, alone, merged = scratch / variant, scratch / f"{variant}.gguf", scratch / f"{variant}_merged.gguf"
        train(program, model, options, kind, adapter)
        run(program, "export", "--quiet", "--model", model, "--adapter", adapter, "--output", alone)
        run(program, "export", "--quiet", "--model", model, "--adapter", adapter, "--merge", "--output", merged, "--type", "f32")
        job = dict(models={"lora": (str(scratch / "base.gguf"), str(alone)), "merged": (str(merged), None),
                           "base": (str(scratch / "base.gguf"), None)}, prompts=prompts,
                   count=COUNT)
        (scratch / "job.json").write_text(json.dumps(job))
        run(arguments.llama, "-c", LLAMA, scratch / "job.json", scratch / "llama.npz")
        wrong += not agree(arguments, f"{name} {variant}", model, adapter, prompts, scratch)
    return wrong


def agree(arguments, name: str, model: Path, adapter: Path, prompts: list, scratch: Path) -> bool:
    theirs, peft = np.load(scratch / "llama.npz"), logits_of_peft(model, adapter, prompts)
    far = {"lora": 0.0, "merged": 0.0, "base": 0.0, "serve": 0.0}
    same = dict.fromkeys(["lora", "merged", "qtrain"], 0)
    largest = max(np.abs(p["logits"]).max() for p in peft.values())
    ends = ends_of(model)
    rows = scratch / "generate.jsonl"
    rows.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in PROMPTS))
    ours = [json.loads(line)["completion"] for line in
            run(arguments.program, "generate", "--quiet", "--model", model, "--adapter", adapter, "--input", rows, "--raw",
                "--greedy", "--dtype", "float32", "--max_new_tokens", COUNT).splitlines()]
    texts = decode(arguments.program, model, [until_end(peft[i]["answer"], ends) for i in range(len(prompts))], scratch)
    for i, answer in enumerate(served(arguments.program, model, adapter, prompts)):
        for which in ("lora", "merged"):
            same[which] += list(theirs[f"{which} {i} answer"]) == peft[i]["answer"]
            far[which] = max(far[which], np.abs(theirs[f"{which} {i} logits"] - peft[i]["logits"]).max())
        far["base"] = max(far["base"], np.abs(theirs[f"base {i} logits"] - peft[i]["base"]).max())
        same["qtrain"] += ours[i] == texts[i]
        places = log_softmax(peft[i]["logits"])[len(prompts[i]) - 1:]
        assert len(answer["token_logprobs"]) > 0
        for place, chosen, top in zip(places, answer["token_logprobs"], answer["top_logprobs"]):
            # llama.cpp gives all tokens without a text of their own the same name.
            values = sorted(top.values(), reverse=True) if len(top) == TOP else [chosen]
            far["serve"] = max(far["serve"], np.abs(np.sort(place)[::-1][:len(values)] - values).max())
    effect = max(np.abs(p["logits"] - p["base"]).max() for p in peft.values())
    bound = BOUND * largest + 2 * far["base"]
    good = (all(n == len(prompts) for n in same.values()) and max(far["lora"], far["merged"]) <= bound
            and far["serve"] <= BOUND * largest and effect > 100 * bound)
    print(f"{'ok   ' if good else 'WRONG'} {name}: greedy answers as PEFT's: {same['lora']} with --lora, {same['merged']} merged, "
          f"{same['qtrain']} qtrain of {len(prompts)}; logits up to {largest:.1f}, moved by {effect:.1f}; off by "
          f"{far['lora']:.1e} with --lora, {far['merged']:.1e} merged, {far['base']:.1e} without; log probabilities of qtrain "
          f"{far['serve']:.1e}", flush=True)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--program", default="build/release/bin/qtrain")
    parser.add_argument("--llama", required=True, help="interpreter with llama_cpp")
    arguments = parser.parse_args()
    wrong = 0
    for model in arguments.models or sorted(GOLDENS.glob("*.gguf")):
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            read = model
            if model.suffix == ".gguf":
                read = scratch / "model"
                run(arguments.program, "import", "--quiet", model, "--output", read, "--dtype", "float32")
            wrong += check(arguments, read, model.stem if model.suffix else model.name, scratch)
    print("all agree" if wrong == 0 else f"{wrong} disagree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
