"""How far transformers in 16 bits is from float64 on a training curve, for calibrating the tolerance of such runs."""

import copy
import json

import torch
from torch.nn.utils import clip_grad_norm_, get_total_norm
from transformers import get_scheduler

import golden_curves as gc
import golden_models as gm
import golden_reference as gr

CURVES = ("llama_bias_full", "qwen3_lora_rs")
TYPES = dict(bf16=torch.bfloat16, f16=torch.float16)
# With these loss scales, gradients of the models are in the range of float16; each scale rounds them differently.
LOSS_SCALES = (512.0, 1000.0, 3000.0)


def narrow_steps(model, rows, config, dtype, scale, autocast):
    """The loop of plain_steps with 16-bit weights, activations and micro-batch gradients, or with 16-bit GEMMs only
    (`autocast`); the weights that the optimizer updates, its state and the sums of gradients are float32."""
    args = gc.arguments(config, "unused")
    optimizer = torch.optim.AdamW(gc.groups(model, args), lr=args.learning_rate, betas=(args.adam_beta1, args.adam_beta2),
                                  eps=args.adam_epsilon)
    schedule = get_scheduler(args.lr_scheduler_type, optimizer, num_warmup_steps=int(args.warmup_steps),
                             num_training_steps=args.max_steps)
    narrow, log = copy.deepcopy(model).to(torch.float32 if autocast else dtype), []
    pairs = [(p, q) for p, q in zip(model.parameters(), narrow.parameters(), strict=True) if p.requires_grad]
    for _, (_, window) in zip(range(args.max_steps), gc.windows(rows, args)):
        padded = [gr.pad(batch) for batch in window]
        count = max(1, sum(int((labels[:, 1:] != -100).sum()) for _, labels in padded))
        loss = 0.0
        with torch.no_grad():
            for p, q in pairs:
                p.grad = torch.zeros_like(p)
                q.copy_(p)
        for inputs, labels in padded:
            with torch.autocast("cpu", dtype=dtype, enabled=autocast):
                logits = narrow(**inputs, use_cache=False).logits
            part = gr.loss_sum(logits, labels)[0] / count
            (part * scale).backward()
            for p, q in pairs:
                if q.grad is not None:
                    p.grad += q.grad.float() / scale
                    q.grad = None
            loss += part.item()
        norm = get_total_norm([p.grad for p, _ in pairs])
        if args.max_grad_norm > 0:
            clip_grad_norm_([p for p, _ in pairs], args.max_grad_norm)
        optimizer.step()
        schedule.step()
        log.append(dict(loss=loss, grad_norm=norm.item()))
    return log


def make(root):
    """Writes spread_16bit.json next to expected.json, for the curves that also run in 16 bits."""
    for name in CURVES:
        folder = root / "curves" / name
        config = json.loads((folder / "config.json").read_text())
        rows = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
        truth = gc.plain_steps(gc.load(folder, config, "f64"), rows, config, "f64")
        spread = {}
        for precision, dtype in TYPES.items():
            runs = [gc.differences(narrow_steps(gc.load(folder, config), rows, config, dtype, scale, autocast), truth)
                    for autocast in (False, True) for scale in LOSS_SCALES]
            spread[precision] = {key: max(r[key] for r in runs) for key in runs[0]}
        gm.write_json(folder / "spread_16bit.json", dict(spread=spread))
        print("16 bits", name, spread, flush=True)
