#!/usr/bin/env python3
"""Runs the training step of this project's example with TRL: SFTTrainer, LoRA r=16 on all linear layers, float32.

    python sft_step.py --model DIR --data rows.jsonl --steps 6
Prints one JSON document on stdout: {tokens_per_second, seconds, peak_rss_mb, versions, losses, ...}.
"""

import argparse
import importlib.metadata
import json
import os
import resource
import sys
import tempfile
import time

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
TURN = "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
MARKED_TURN = (
    "{% if message['role'] == 'assistant' %}{{'<|im_start|>assistant\\n'}}{% generation %}"
    "{{message['content'] + '<|im_end|>\\n'}}{% endgeneration %}{% else %}" + TURN + "{% endif %}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="JSONL with `messages`")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--full", action="store_true", help="train all weights instead of LoRA")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--max_length", type=int, default=1024)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    return parser.parse_args()


def mark_assistant(tokenizer):
    """Adds generation tags around assistant turns, including the line end, to a ChatML template without them."""
    marked = tokenizer.chat_template.replace(TURN.replace("\\n", "\n"), MARKED_TURN).replace(TURN, MARKED_TURN)
    if "{% generation %}" not in marked:
        sys.exit("this chat template has no generation tags and is not the supported form of ChatML")
    tokenizer.chat_template = marked


def make_trainer(args, output, clock):
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if "generation %}" not in tokenizer.chat_template:
        mark_assistant(tokenizer)
    rows = [json.loads(line) for line in open(args.data, encoding="utf-8")][: args.steps * args.batch * 4]
    config = SFTConfig(
        output_dir=output, max_steps=args.steps, per_device_train_batch_size=args.batch, logging_steps=1,
        learning_rate=args.learning_rate, lr_scheduler_type="cosine", bf16=False, use_cpu=True, report_to="none",
        gradient_checkpointing=False, assistant_only_loss=True, packing=args.packing, save_strategy="no",
        max_length=args.max_length, train_sampling_strategy="sequential", disable_tqdm=True, seed=42)
    lora = None if args.full else LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear",
                                             task_type="CAUSAL_LM")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype))
    data = Dataset.from_list([{"messages": r["messages"]} for r in rows])
    return SFTTrainer(model=model, args=config, train_dataset=data, processing_class=tokenizer, peft_config=lora,
                      callbacks=[clock])


def make_clock():
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Records the time at the end of each step."""

        def __init__(self):
            self.times = []

        def on_train_begin(self, *_, **__):
            self.times.append(time.perf_counter())

        def on_step_end(self, *_, **__):
            self.times.append(time.perf_counter())

    return Clock()


def summary(trainer, clock, started):
    logs = [r for r in trainer.state.log_history if "loss" in r]
    tokens = [r["num_tokens"] for r in logs]
    seconds = clock.times[-1] - clock.times[0]
    rest = clock.times[-1] - clock.times[1]
    return dict(
        peer="trl", tokens_per_second=tokens[-1] / seconds, seconds=seconds, tokens=tokens[-1],
        tokens_per_second_after_first=(tokens[-1] - tokens[0]) / rest if rest > 0 else None,
        total_seconds=time.perf_counter() - started,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        losses=[r["loss"] for r in logs], versions={p: importlib.metadata.version(p) for p in PACKAGES})


def main():
    args, started = parse(), time.perf_counter()
    out, sys.stdout = sys.stdout, sys.stderr
    clock = make_clock()
    with tempfile.TemporaryDirectory() as output:
        trainer = make_trainer(args, output, clock)
        trainer.train()
        result = summary(trainer, clock, started)
    print(json.dumps(result | dict(threads=args.threads, steps=args.steps, batch=args.batch)), file=out)


if __name__ == "__main__":
    main()
