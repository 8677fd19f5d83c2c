#!/usr/bin/env python3
"""What transformers and torch do with early stopping, reduce_lr_on_plateau and NEFTune (tests/train/recipe_goldens).

    pip install -r tests/golden/requirements.txt
    python tests/train/make_recipe_goldens.py
    scripts/goldens.py pack tests/train/recipe_goldens.tar.xz
"""

import contextlib
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainingArguments, get_scheduler
from transformers.integrations.neftune import activate_neftune

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))
import golden_curves as gc  # noqa: E402
import golden_models as gm  # noqa: E402
import golden_reference as gr  # noqa: E402

OUT, MODELS = HERE / "recipe_goldens", HERE.parent / "golden/data"
NAN, INF = math.nan, math.inf


class OneWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return {"loss": (self.w * x).sum()}


class Evaluated(Trainer):
    """A Trainer whose evaluations give these metrics in turn."""

    metrics = ()

    def evaluate(self, ignore_keys=None):
        metrics = {"eval_loss": self.metrics.pop(0)}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def trained(metrics, arguments, patience=None, threshold=0.0):
    """The state of a Trainer at its end, with an evaluation after each of its steps."""
    with tempfile.TemporaryDirectory() as output:
        args = TrainingArguments(output_dir=output, max_steps=len(metrics), eval_strategy="steps", eval_steps=1,
                                 logging_steps=1, save_strategy="no", use_cpu=True, report_to="none", disable_tqdm=True,
                                 per_device_train_batch_size=1, metric_for_best_model="loss", **arguments)
        stopping = [EarlyStoppingCallback(patience, threshold)] if patience else []
        trainer = Evaluated(model=OneWeight(), args=args, train_dataset=[{"x": torch.ones(1)}] * 4, eval_dataset=[],
                            callbacks=stopping)
        trainer.remove_callback(PrinterCallback)
        trainer.metrics = list(metrics) + ([metrics[-1]] if arguments.get("eval_on_start") else [])
        trainer.train()
    return trainer.state, stopping[0].early_stopping_patience_counter if stopping else None


STOPPING = [
    dict(metrics=[3, 2, 2.5, 2.4, 1, 2, 2, 2], patience=2),
    dict(metrics=[3, 2, 2.5, 2.4, 1, 2, 2, 2], patience=3),
    dict(metrics=[3, 2, 2, 2, 2], patience=1),
    dict(metrics=[3, 2.95, 2.9, 2.85, 2.8, 2.75], patience=2, threshold=0.06),
    dict(metrics=[3, 2.9, 2.8, 2.7, 2.6, 2.5], patience=2, threshold=0.06),
    dict(metrics=[1, 2, 3, 2, 2, 2, 2], patience=2, greater_is_better=True),
    dict(metrics=[NAN, NAN, NAN, 1], patience=2),
    dict(metrics=[NAN, 3, NAN, 2, NAN, NAN, 1], patience=2),
    dict(metrics=[INF, 3, INF, INF, 1], patience=2),
    dict(metrics=[3, 4, 5, 6], patience=2, eval_on_start=True),
]


def stopping_row(metrics, patience, threshold=0.0, **arguments):
    state, counter = trained(metrics, arguments, patience, threshold)
    return dict(metrics=[m if math.isfinite(m) else None for m in metrics], patience=patience, threshold=threshold,
                arguments=arguments, last_step=state.global_step, counter=counter)


WAVES = [5, 4, 4.5, 4.2, 4.1, 4, 3.9999, 3.5, 3.6, 3.6, 3.6, 3.6, 3.4, 3.6, 3.6, 3.6, 3.6, 3.6, 3.6]
PLATEAUS = [
    dict(metrics=WAVES),
    dict(metrics=WAVES, patience=1),
    dict(metrics=WAVES, patience=0, factor=0.5),
    dict(metrics=WAVES, patience=1, factor=0.3, cooldown=2),
    dict(metrics=WAVES, patience=1, min_lr=2e-5),
    dict(metrics=WAVES, patience=0, factor=0.5, eps=1e-5),
    dict(metrics=WAVES, patience=1, threshold=0.2, threshold_mode="rel"),
    dict(metrics=WAVES, patience=1, threshold=0.45, threshold_mode="abs"),
    dict(metrics=WAVES, patience=1, mode="max"),
    dict(metrics=WAVES, patience=2, mode="max", threshold=0.3, threshold_mode="abs"),
    dict(metrics=[NAN, NAN, 3, NAN, 2, 2, 2], patience=1),
]


def plateau_row(metrics, **kwargs):
    """The learning rate of each update, as Trainer logs it, and that of the schedule alone."""
    rate = 1e-3
    state, _ = trained(metrics, dict(lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs=kwargs,
                                     learning_rate=rate, optim="sgd"))
    logged = [r["learning_rate"] for r in state.log_history if "loss" in r and "learning_rate" in r]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedule, rates = get_scheduler("reduce_lr_on_plateau", optimizer, scheduler_specific_kwargs=dict(kwargs)), []
    for metric in metrics:
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step(metric)
    assert logged == rates, (logged, rates)
    return dict(metrics=[m if math.isfinite(m) else None for m in metrics], kwargs=kwargs, learning_rate=rate,
                rates=rates)


def philox(key, stream, counter):
    """core/rng.h, for an array of counters."""
    mask = (1 << 32) - 1
    word = lambda x: np.full(counter.shape, x & mask, np.uint64)
    c = [counter & np.uint64(mask), counter >> np.uint64(32), word(stream), word(stream >> 32)]
    k0, k1 = key & mask, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & np.uint64(mask),
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & np.uint64(mask)]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return np.stack(c, -1)


def stream_of(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001B3 & (1 << 64) - 1
    return h


def joined(words):
    return int(words[0]) << 32 | int(words[1])


def one(key, stream, counter):
    return philox(key, stream, np.array([counter], np.uint64))[0]


def unit_noise(seed, epoch, row, shape):
    """The noise of a row in [-1, 1), as train/step/row_noise.h and kernels/noise.h define it."""
    tokens, width = shape
    key, noise = joined(one(seed ^ stream_of("noise of rows"), epoch, row)), []
    for t in range(tokens):
        token = joined(one(key, stream_of("noise of tokens"), t))
        words = philox(token, 0x4E4546, np.arange((width + 3) // 4, dtype=np.uint64)).reshape(-1)[:width]
        noise.append((words >> np.uint64(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1))
    return torch.from_numpy(np.stack(noise))


@contextlib.contextmanager
def our_noise(rows, seed=42):
    """Within it, the hook of transformers draws the noise of rows that come one by one, in order."""
    place, draw = [0], torch.Tensor.uniform_

    def uniform_(self, low, high):
        assert self.shape[0] == 1 and len(rows[place[0] % len(rows)]["input_ids"]) == self.shape[1]
        noise = unit_noise(seed, place[0] // len(rows), place[0] % len(rows), self.shape[1:])
        place[0] += 1
        return self.copy_((noise * torch.as_tensor(high, dtype=torch.float32))[None])

    torch.Tensor.uniform_ = uniform_
    try:
        yield
    finally:
        torch.Tensor.uniform_ = draw


ROW_BY_ROW = dict(per_device_train_batch_size=1, gradient_accumulation_steps=4, neftune_noise_alpha=5.0)
EMBEDDING = dict(gm.LORA_RS, target_modules=["q_proj", "embed_tokens"])
CURVES = [
    gc.Curve("neftune_llama", "llama_gqa3_tied", ROW_BY_ROW),
    gc.Curve("neftune_gemma3", "gemma3", ROW_BY_ROW),
    gc.Curve("neftune_granite", "granite", ROW_BY_ROW),
    gc.Curve("neftune_lora", "qwen3_hd8", gc.LORA_RUN | ROW_BY_ROW, EMBEDDING, b_scale=0.3),
]


def plain_steps(model, rows, config, precision):
    model.train()
    hook = activate_neftune(model, config["neftune_noise_alpha"])
    with our_noise(rows):
        steps = gc.plain_steps(model, rows, config, precision)
    hook.remove()
    return steps


def write_curve(curve):
    folder = OUT / curve.name
    config = gc.RUN | gc.DATA_KEYS | curve.change
    rows = gc.write_inputs(curve, MODELS, folder, config)
    loops = {p: plain_steps(gc.load(folder, config, p), rows, config, p) for p in ("f32", "f64")}
    model = gc.load(folder, config)
    with our_noise(rows):
        steps = gc.trainer_steps(model, rows, config)
    gc.agree(curve, steps, loops["f32"], 0)
    lines = ",\n  ".join(json.dumps(s) for s in steps)
    spread = json.dumps(gc.differences(steps, loops["f64"]))
    (folder / "expected.json").write_text(f'{{"spread": {spread},\n "steps": [\n  {lines}]}}\n')
    print(curve.name, spread, flush=True)


def write_rows(name, rows):
    (OUT / name).write_text('{"rows": [\n ' + ",\n ".join(json.dumps(r) for r in rows) + "]}\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    write_rows("early_stopping.json", [stopping_row(**case) for case in STOPPING])
    write_rows("plateau.json", [plateau_row(**case) for case in PLATEAUS])
    for curve in CURVES:
        write_curve(curve)


if __name__ == "__main__":
    main()
