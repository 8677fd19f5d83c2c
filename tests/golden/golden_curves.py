"""Ten training steps with Trainer, and the same steps in a plain loop that also runs in float64."""

import contextlib
import functools
import inspect
import itertools
import json
import logging
import shutil
import tempfile
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.optimizers import create_loraplus_optimizer
from peft.tuners.lora import layer as lora_layer
from peft.utils import loftq_utils
from safetensors.torch import save_file
from torch.nn.utils import clip_grad_norm_, get_total_norm
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback, Trainer, TrainingArguments,
                          get_scheduler)
from trl import SFTConfig, SFTTrainer

import golden_models as gm
import golden_quant as gq
import golden_reference as gr
from golden_sums import sums

RUN = dict(model_name_or_path="model", dataset_name="data.jsonl", output_dir="out", dtype="float32", bf16=False,
           max_steps=10, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=5e-3,
           lr_scheduler_type="linear", warmup_steps=3, weight_decay=0.1, max_grad_norm=1.0, optim="adamw_torch",
           train_sampling_strategy="sequential", gradient_checkpointing=False, logging_steps=1, save_strategy="no",
           report_to="none", seed=42)
DATA_KEYS = dict(max_length=None, packing=False)  # with a length, fully masked rows are dropped, as TRL does
LORA_RUN = dict(use_peft=True, learning_rate=2e-2, adapter_name_or_path="adapter")
NEW_RUN = dict(use_peft=True, learning_rate=2e-2, lora_r=4, lora_alpha=8, lora_dropout=0)
NF4 = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
FP4 = dict(bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=False)


@dataclass
class Curve:
    name: str
    model: str
    change: dict = field(default_factory=dict)
    lora: dict | None = None
    b_scale: float = 0.0
    keep_final: bool = True
    no_targets_in: tuple = ()  # rows without any target
    serialized: dict | None = None  # the base is quantized in its folder
    starts: dict | None = None  # instead of `lora`: a new adapter, initialized from the base weights


CURVES = [
    Curve("llama_full", "llama_gqa3_tied", no_targets_in=(3, 8, 9)),
    Curve("qwen3_full", "qwen3_hd8", dict(learning_rate=2e-3, max_grad_norm=0.7, adam_beta2=0.95, adam_epsilon=1e-6)),
    Curve("llama_bias_full", "llama_bias", dict(lr_scheduler_type="constant", warmup_steps=0), keep_final=False),
    Curve("llama_lora_all", "llama_gqa3_tied", LORA_RUN, gm.LORA_ALL),
    Curve("qwen3_lora_rs", "qwen3_hd8", LORA_RUN, gm.LORA_RS, b_scale=0.3),
    Curve("qwen3_lora_plus", "qwen3_hd8", LORA_RUN | dict(learning_rate=5e-3, loraplus_lr_ratio=4.0,
                                                          loraplus_lr_embedding=1e-3),
          dict(gm.LORA_RS, target_modules=["q_proj", "embed_tokens"], modules_to_save=["lm_head"])),
    Curve("qlora_nf4", "llama_gqa3_tied", LORA_RUN | NF4, gm.LORA_ALL),
    Curve("qlora_fp4_serialized", "llama_gqa3_tied", LORA_RUN, gm.LORA_ALL, b_scale=0.3, serialized=FP4),
    Curve("llama_dora", "llama_gqa3_tied", LORA_RUN, dict(gm.LORA_ALL, use_dora=True)),
    Curve("qwen3_dora_rs", "qwen3_hd8", LORA_RUN, dict(gm.LORA_RS, use_dora=True), b_scale=0.3),
    Curve("qlora_dora_nf4", "llama_gqa3_tied", LORA_RUN | NF4, dict(gm.LORA_ALL, use_dora=True), b_scale=0.3),
    *(Curve(f"qwen3_{name}", "qwen3_hd8", NEW_RUN | keys | dict(init_lora_weights=init),
            starts=lora | dict(init_lora_weights=init), keep_final=False)
      for name, init, lora, keys in (
          ("pissa", "pissa", gm.LORA_ALL, dict(lora_target_modules="all-linear")),
          ("pissa_niter", "pissa_niter_300", gm.LORA_RS, dict(lora_target_modules=["q_proj", "v_proj"], use_rslora=True)),
          ("pissa_dora", "pissa", dict(gm.LORA_RS, use_dora=True),
           dict(lora_target_modules=["q_proj", "v_proj"], use_rslora=True, use_dora=True)),
          ("olora", "olora", dict(gm.LORA_RS, target_modules=["q_proj", "down_proj", "lm_head"]),
           dict(lora_target_modules=["q_proj", "down_proj", "lm_head"], use_rslora=True)))),
    Curve("llama_loftq", "llama_gqa3_tied",
          NEW_RUN | dict(load_in_4bit=True, lora_target_modules="all-linear", init_lora_weights="loftq"),
          starts=dict(gm.LORA_ALL, init_lora_weights="loftq", loftq_config=dict(loftq_bits=4, loftq_iter=1)),
          keep_final=False),
    Curve("gemma2_full", "gemma2"),
    Curve("gemma2_lora", "gemma2", LORA_RUN, gm.LORA_ALL),
    Curve("qwen3_moe_full", "qwen3_moe", dict(router_aux_loss_mode="trainer")),
    Curve("qwen3_moe_lora", "qwen3_moe", LORA_RUN | dict(router_aux_loss_coef=0.0), gm.LORA_ALL, b_scale=0.3),
    Curve("qwen3_moe_balanced", "qwen3_moe", dict(router_aux_loss_coef=0.3), no_targets_in=(8, 9)),
    Curve("qwen3_moe_balanced_lora", "qwen3_moe_balanced", LORA_RUN | dict(router_aux_loss_mode="trainer"), gm.LORA_ALL,
          b_scale=0.3),
    *(Curve(f"{name}_full", name) for name in ("smollm3", "olmo2", "granite", "gemma3")),
    *(Curve(f"{name}_lora", name, LORA_RUN, gm.LORA_ALL, b_scale=0.3)
      for name in ("smollm3", "olmo2", "granite", "gemma3")),
    Curve("mixtral_full", "mixtral", dict(router_aux_loss_mode="trainer")),
    Curve("mixtral_lora", "mixtral", LORA_RUN | dict(router_aux_loss_coef=0.0), gm.LORA_ALL, b_scale=0.3),
    Curve("phi3_full", "phi3"),
    Curve("phi3_lora", "phi3", LORA_RUN, gm.LORA_ALL),
    Curve("gpt_oss_full", "gpt_oss", dict(router_aux_loss_mode="trainer")),
    Curve("gpt_oss_lora", "gpt_oss", LORA_RUN | dict(router_aux_loss_coef=0.0), gm.LORA_EXPERTS, b_scale=0.3),
    Curve("qwen2_moe_full", "qwen2_moe", dict(router_aux_loss_mode="trainer")),
    Curve("qwen2_moe_lora", "qwen2_moe", LORA_RUN | dict(router_aux_loss_coef=0.0), gm.LORA_ALL, b_scale=0.3),
    *(Curve(f"{name}_full", name, keep_final=False) for name in ("olmo3", "exaone4", "ministral3", "hunyuan")),
    Curve("olmoe_full", "olmoe", dict(router_aux_loss_mode="trainer"), keep_final=False),
    Curve("no_clip", "llama_gqa3_tied", dict(max_grad_norm=0.0), keep_final=False),
    Curve("cosine", "llama_gqa3_tied", dict(lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.0),
          keep_final=False),
    Curve("label_free_window", "llama_gqa3_tied", no_targets_in=(8, 9, 10, 11), keep_final=False),
]


def make_data(curve, vocab):
    """21 rows that each count upward by a different step, so that there is something to learn."""
    rng, rows = np.random.default_rng(7), []
    for i in range(21):
        n = 1 if i == 5 else int(rng.integers(2, 15))
        start, step = int(rng.integers(3, vocab)), int(rng.integers(1, 4))
        ids = [3 + (start + k * step) % (vocab - 3) for k in range(n)]
        rows.append(dict(input_ids=ids, labels=gm.labels_for(3 if i in curve.no_targets_in else i % 2, ids)))
    return rows


def collate(rows):
    inputs, labels = gr.pad(rows)
    return inputs | dict(labels=labels)


@functools.cache
def loftq_on_cpu():
    """PEFT's loftq_init, which only knows GPUs, on the CPU, where Params4bit may have another layout."""
    source = inspect.getsource(loftq_utils.loftq_init)
    for old, new in (('else "cuda"', 'else "cpu"'),
                     ("dequantize_4bit(qweight.data, qweight.quant_state)",
                      'dequantize_4bit(*bnb.functional.quantize_4bit(res, quant_type="nf4"))')):
        assert old in source
        source = source.replace(old, new)
    exec(compile(source, "loftq_init", "exec"), loftq_utils.__dict__)
    lora_layer.loftq_init = loftq_utils.loftq_init


@contextlib.contextmanager
def exact_decompositions():
    """Singular values and QR decompositions as they would be without rounding."""
    kept = torch.linalg.svd, torch.linalg.qr

    def wide(decomposition):
        def exact(a, **how):
            parts = decomposition(a.double(), **how)
            return type(parts)([t.float() for t in parts])
        return exact
    torch.linalg.svd, torch.linalg.qr = map(wide, kept)
    yield
    torch.linalg.svd, torch.linalg.qr = kept


def started(folder, curve, precision="f32"):
    """A model with a new adapter, which PEFT initializes in float32, for float64 from exact decompositions."""
    if curve.starts["init_lora_weights"] == "loftq":
        loftq_on_cpu()
    base = gr.load(folder / "model", "f32")
    with exact_decompositions() if precision in gr.WIDE else contextlib.nullcontext():
        model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **curve.starts), autocast_adapter_dtype=False)
    if precision in gr.WIDE:
        gr.widen(model.base_model.model)
    return model.eval()


def changes(model, initial):
    """What an adapter adds to the weights of the original model, by the names of its layers: B A - B0 A0 times the
    scale. `initial` is a model with the initial adapter."""
    found = {}
    for (name, now), (_, first) in zip(model.named_modules(), initial.named_modules(), strict=True):
        if not hasattr(now, "lora_A") or not len(now.lora_A):
            continue
        product = lambda layer: layer.lora_B["default"].weight.double() @ layer.lora_A["default"].weight.double()
        kept = product(first) if model.peft_config["default"].init_lora_weights != "loftq" else 0
        found[name.removeprefix("base_model.model.") + ".weight"] = now.scaling["default"] * (product(now) - kept)
    return found


def arguments(config, output):
    known = {f.name for f in fields(TrainingArguments)} - {"gradient_checkpointing"}
    values = {k: v for k, v in config.items() if k in known}
    return TrainingArguments(**(values | dict(output_dir=output, use_cpu=True, disable_tqdm=True)))


def load(folder, config, precision="f32", curve=None):
    if curve and curve.starts:
        return started(folder, curve, precision)
    adapter = folder / config["adapter_name_or_path"] if "adapter_name_or_path" in config else None
    if gq.is_quantized(folder, config):
        return gq.load(folder, config, precision)
    return gr.load(folder / "model", precision, adapter)


def sft_trainer(args, rows, config, how):
    """TRL's trainer, which adds the router loss itself. It requires a tokenizer, but does not use it."""
    values = {k: v for k, v in config.items() if k in {f.name for f in fields(TrainingArguments)}}
    args = SFTConfig(**(values | DATA_KEYS | dict(output_dir=args.output_dir, use_cpu=True, disable_tqdm=True)),
                     dataset_kwargs=dict(skip_prepare_dataset=True), router_aux_loss_coef=config["router_aux_loss_coef"])
    words = Tokenizer(WordLevel({str(i): i for i in range(64)}, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="2")
    return SFTTrainer(args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **how)


def set_router_loss(model, config):
    """config.json as the run uses it, and the weight of a micro-batch's router loss in a window."""
    averaged = bool(config.get("router_aux_loss_coef"))
    if averaged:
        model.config.output_router_logits, model.config.router_aux_loss_coef = True, config["router_aux_loss_coef"]
    return lambda window: 1 / len(window) if averaged else 1.0


def trainer_steps(model, rows, config):
    """The values that Trainer logs at each step."""
    with tempfile.TemporaryDirectory() as output:
        args = arguments(config, output)
        own = (optimizer_of(model, args, config), None) if "loraplus_lr_ratio" in config else (None, None)
        how = dict(model=model, data_collator=collate, optimizers=own)
        if config.get("router_aux_loss_coef"):
            trainer = sft_trainer(args, rows, config, how)
        else:
            trainer = Trainer(args=args, train_dataset=rows, **how)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    keys = ("step", "epoch", "loss", "grad_norm", "learning_rate", "aux_loss")
    return [{k: r[k] for k in keys if k in r} for r in trainer.state.log_history if "loss" in r]


def windows(rows, args):
    """Endlessly yields (epoch, the micro-batches of a window); the last window and the last batch of an epoch may be
    short."""
    size, per_window = args.per_device_train_batch_size, args.gradient_accumulation_steps
    batches = [rows[i : i + size] for i in range(0, len(rows), size)]
    for epoch in itertools.count():
        for i in range(0, len(batches), per_window):
            window = batches[i : i + per_window]
            yield epoch + (i + len(window)) / len(batches), window


def groups(model, args):
    """Parameter groups: weight decay for all parameters except biases and norms."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    bare = lambda n: "bias" in n or "norm" in n
    return [dict(params=[p for n, p in trained if not bare(n)], weight_decay=args.weight_decay),
            dict(params=[p for n, p in trained if bare(n)], weight_decay=0.0)]


def optimizer_of(model, args, config):
    how = dict(lr=args.learning_rate, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon)
    if "loraplus_lr_ratio" not in config:
        return torch.optim.AdamW(groups(model, args), **how)
    rates = {k: config[k] for k in ("loraplus_lr_ratio", "loraplus_lr_embedding")}
    return create_loraplus_optimizer(model, torch.optim.AdamW, loraplus_weight_decay=args.weight_decay, **rates, **how)


def plain_steps(model, rows, config, precision):
    """The loop that Trainer is equivalent to: the loss of a window is the sum over its targets divided by their
    number."""
    args = arguments(config, "unused")
    optimizer = optimizer_of(model, args, config)
    schedule = get_scheduler(args.lr_scheduler_type, optimizer, num_warmup_steps=int(args.warmup_steps),
                             num_training_steps=args.max_steps)
    trained, log, share = [p for p in model.parameters() if p.requires_grad], [], set_router_loss(model, config)
    for step, (epoch, window) in zip(range(args.max_steps), windows(rows, args)):
        padded = [gr.pad(batch) for batch in window]
        count = max(1, sum(int((labels[:, 1:] != -100).sum()) for _, labels in padded))
        loss = 0.0
        for inputs, labels in padded:
            with gr.arithmetic(precision):
                out = model(**inputs, use_cache=False)
                part = gr.loss_sum(out.logits, labels)[0] / count + share(window) * gr.router_loss(model, out)[1]
                part.backward()
            loss += part.item()
        norm = get_total_norm([p.grad for p in trained])
        if args.max_grad_norm > 0:
            clip_grad_norm_(trained, args.max_grad_norm)
        optimizer.step()
        log.append(dict(step=step + 1, epoch=epoch, loss=loss, grad_norm=norm.item(),
                        learning_rate=schedule.get_last_lr()[0]))
        schedule.step()
        optimizer.zero_grad()
    return log


def final(model):
    state = get_peft_model_state_dict(model, save_embedding_layers=False) if isinstance(model, PeftModel) else model.state_dict()
    tied = not isinstance(model, PeftModel) and model.config.tie_word_embeddings
    state = {n: t for n, t in state.items() if not (tied and n == "lm_head.weight")}
    return {file_name: t.detach().clone().contiguous()
            for name, whole in state.items() for file_name, t in gr.in_files(name, whole, model.config.model_type).items()}


def summed(tensors):
    return {n: sums(t) for n, t in tensors.items()}


def farthest(a, b):
    return gr.short(max((a[n].double() - b[n].double()).abs().max().item() for n in b))


def differences(steps, truth):
    worst = lambda key: gr.short(max(abs(a[key] - b[key]) for a, b in zip(steps, truth)))
    return dict(loss=worst("loss"), grad_norm=worst("grad_norm"))


def write_inputs(curve, root, folder, config):
    (folder / "model").mkdir(parents=True)
    for source in (root / curve.model / "config.json", root / curve.model / "model.safetensors"):
        gm.link(folder / "model" / source.name, source)
    vocab = json.loads((folder / "model" / "config.json").read_text())["vocab_size"]
    rows = make_data(curve, vocab)
    (folder / "data.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    gm.write_json(folder / "config.json", config)
    if curve.serialized:
        gq.serialize(folder, curve.serialized)
    if curve.lora:
        base = AutoModelForCausalLM.from_pretrained(folder / "model")
        model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **curve.lora))
        gr.fill_adapter(model, curve.name, curve.b_scale)
        gr.save_adapter(model, folder / "adapter")
    return rows


def write_curve(curve, root):
    folder = root / "curves" / curve.name
    config = RUN | DATA_KEYS | curve.change
    rows = write_inputs(curve, root, folder, config)
    models = {p: load(folder, config, p, curve) for p in ("f32", "f64")}
    loops = {p: plain_steps(m, rows, config, p) for p, m in models.items()}
    model = load(folder, config, curve=curve)
    steps = trainer_steps(model, rows, config)
    if curve.starts:
        initial = started(folder, curve)
        weights, *others = (changes(m, initial) for m in (model, models["f32"], models["f64"]))
    else:
        weights, *others = (final(m) for m in (model, models["f32"], models["f64"]))
    agree(curve, steps, loops["f32"], farthest(weights, others[0]))
    stored, exact = summed(weights), summed(others[1])
    spread = differences(steps, loops["f64"]) | dict(final=farthest(stored, exact))
    lines = ",\n  ".join(json.dumps(s) for s in steps)
    (folder / "expected.json").write_text(
        f'{{"spread": {json.dumps(spread)},\n "steps": [\n  {lines}]}}\n')
    if curve.starts:
        save_file(stored, folder / "expected_changes.safetensors", metadata={"format": "pt"})
    if curve.keep_final:
        save_file(stored, folder / "expected_final.safetensors", metadata={"format": "pt"})
    print("curve", curve.name, spread, flush=True)


def agree(curve, trainer, plain, distance):
    """Checks that Trainer's loss is the token-weighted one, and that its rates, epochs and norms are as assumed."""
    for a, b in zip(trainer, plain, strict=True):
        for key in b:
            assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (curve.name, key, a, b)
    assert distance < 2e-4, (curve.name, distance)


def make(root, match=""):
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if not match:
        shutil.rmtree(root / "curves", ignore_errors=True)
    for curve in CURVES:
        if match not in curve.name:
            continue
        shutil.rmtree(root / "curves" / curve.name, ignore_errors=True)
        write_curve(curve, root)
