"""Loss, gradients, logits and greedy continuations according to the reference libraries."""

import contextlib
import json

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import AutoModelForCausalLM
from transformers.models.ministral3 import modeling_ministral3

import golden_models as gm
from golden_rounding import rounded_gemms
from golden_sums import sums

PRECISIONS = ("f64", "f32", "bf16_autocast", "bf16_gemms")
WIDE = ("f64", "bf16_gemms")  # float64, but for the operands of GEMMs in the second


@contextlib.contextmanager
def wide():
    """transformers computes norms, rotary phases, softmax and loss in float32, whatever the model's type. In this
    context these computations use float64, so that a float64 model is float64 throughout."""
    saved, scale = (torch.float32, torch.float, torch.Tensor.float), modeling_ministral3.get_llama_4_attn_scale
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    modeling_ministral3.get_llama_4_attn_scale = lambda positions, *how: scale(positions.double(), *how)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved
        modeling_ministral3.get_llama_4_attn_scale = scale


def load(folder, precision, adapter=None):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager")
    if precision in WIDE:
        widen(model)
    if adapter:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=True, autocast_adapter_dtype=False)
        model.to(torch.float64 if precision in WIDE else torch.float32)
    return model.eval()


def widen(model):
    model.double()
    with wide():
        rotary = type(model.model.rotary_emb)(model.config)
    model.model.rotary_emb = rotary


@contextlib.contextmanager
def arithmetic(precision):
    with contextlib.ExitStack() as stack:
        if precision in WIDE:
            stack.enter_context(wide())
        if precision == "bf16_gemms":
            stack.enter_context(rounded_gemms())
        if precision == "bf16_autocast":
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        yield


def pad(rows):
    """Pads on the right as the collators do: ids 0, labels -100, and the attention mask."""
    width = max(len(r["input_ids"]) for r in rows)
    fill = lambda key, value: torch.tensor([r[key] + [value] * (width - len(r[key])) for r in rows])
    mask = torch.tensor([[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"])) for r in rows])
    return dict(input_ids=fill("input_ids", 0), attention_mask=mask), fill("labels", -100)


def loss_sum(logits, labels):
    """The sum of the cross-entropy over shifted labels other than -100, and their number."""
    targets = labels[:, 1:]
    flat = logits[:, :-1].float().reshape(-1, logits.shape[-1])
    return F.cross_entropy(flat, targets.reshape(-1), reduction="sum"), int((targets != -100).sum())


def plain(name):
    """The name of a parameter in files."""
    name = name.replace("modules_to_save.default.", "").replace(".default", "")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


# Names in files of a mixture of experts and its gate, up and down matrices.
EXPERTS = dict(mixtral=("block_sparse_moe", "w1", "w3", "w2"))


def in_files(name, grad, model_type):
    """A gradient under its names in files: each expert's matrices separately, gate and up separately. In gpt-oss, all
    experts are one tensor."""
    mlp, gate, up, down = EXPERTS.get(model_type, ("mlp", "gate_proj", "up_proj", "down_proj"))
    if "lora" in name or model_type == "gpt_oss":
        return {name: grad}
    if ".mlp.gate." in name or ".experts." in name:
        name = name.replace(".mlp.", f".{mlp}.")
    if ".experts." not in name:
        return {name: grad}
    module, part = name.rsplit(".", 1)
    parts = dict(zip((gate, up), grad.chunk(2, 1))) if part == "gate_up_proj" else {down: grad}
    return {f"{module}.{e}.{p}.weight": g[e].contiguous() for p, g in parts.items() for e in range(len(g))}


def router_loss(model, out):
    """The router loss without its coefficient, and with it; both 0 unless config.json enables it."""
    if getattr(out, "aux_loss", None) is None:
        return 0.0, 0.0
    return out.aux_loss.item(), model.config.router_aux_loss_coef * out.aux_loss


def run(model, rows, precision):
    """{loss_sum, count, gradients of loss_sum / count plus the router loss, logits} of one padded batch."""
    inputs, labels = pad(rows)
    model.zero_grad()
    with arithmetic(precision):
        out = model(**inputs, use_cache=False)
        logits = out.logits
        total, count = loss_sum(logits, labels)
        aux_loss, weighted = router_loss(model, out)
        (total / count + weighted).backward()
    grads = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            grads |= in_files(plain(name), p.grad.double(), model.config.model_type)
    return dict(loss_sum=total.item(), aux_loss=aux_loss, count=count, grads=grads, logits=logits.detach().double())


def spread(value, truth):
    """The relative L2 difference of the signed sums that tests compare."""
    value, truth = sums(value), sums(truth)
    return short((value - truth).norm().item() / max(truth.norm().item(), 1e-30))


def short(x):
    return float(f"{x:.2g}")


def compare(runs):
    """How far each precision is from float64, which a tolerance has to allow for."""
    truth, others = runs["f64"], PRECISIONS[1:]
    loss = {p: short(abs(runs[p]["loss_sum"] - truth["loss_sum"]) / truth["count"]) for p in others}
    out = dict(loss_mean=loss, logits={p: spread(runs[p]["stored_logits"], truth["stored_logits"]) for p in others})
    for name, grad in truth["grads"].items():
        out[f"grad.{name}"] = {p: spread(runs[p]["grads"][name], grad) for p in others}
    return out


def write_expectations(path, values):
    """Each entry of `spread` on its own line."""
    entry = lambda k, v: f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}"
    lines = ",\n  ".join(entry(k, v) for k, v in values["spread"].items())
    front = "".join(f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in values.items() if k != "spread")
    path.write_text("{\n" + front + ' "spread": {\n  ' + lines + "}}\n")


KEPT = ("mlp.gate.", "block_sparse_moe.gate.", "qkv_proj", "sinks", "router", "q_proj", "k_proj", "q_norm", "k_norm",
        "input_layernorm", "bias")


def kept(case, grads):
    """For variations of a model, only the gradients that the variation affects are kept: queries, keys, norms and
    biases."""
    return {f"grad.{n}": sums(g) for n, g in grads.items()
            if case.every_gradient or any(part in n for part in KEPT)}


def write_adapter(case, folder):
    """Writes adapter/ as PEFT does, with a B that is not zero."""
    base = AutoModelForCausalLM.from_pretrained(folder)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **case.lora))
    fill_adapter(model, case.name)
    save_adapter(model, folder / "adapter")


@torch.no_grad()
def fill_adapter(model, salt, b_scale=0.3):
    for name, p in model.named_parameters():
        if "lora_magnitude_vector" in name:
            p.mul_(1 + 0.2 * gm.numbers(f"{salt}/{plain(name)}", p.shape))
        elif "lora_" in name:
            scale = p.shape[1] ** -0.5 if "lora_A" in name else b_scale
            p.copy_(scale * gm.numbers(f"{salt}/{plain(name)}", p.shape))
        elif "modules_to_save" in name:
            p.add_(0.1 * gm.numbers(f"{salt}/{plain(name)}", p.shape))


def save_adapter(model, folder):
    model.peft_config["default"].base_model_name_or_path = "model"
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])
    gm.write_json(path, config, sort_keys=True)


def write_merged(folder):
    """The sums of the weights that the adapter changes, after merge_and_unload, under their names in files."""
    model = load(folder, "f64")
    kind = model.config.model_type
    base = {n: t for name, whole in model.state_dict().items() for n, t in in_files(name, whole, kind).items()}
    merged = load(folder, "f64", folder / "adapter").merge_and_unload().state_dict()
    changed = {n: sums(t) for name, whole in merged.items()
               for n, t in in_files(name, whole, kind).items() if not torch.equal(t, base[n])}
    save_file(changed, folder / "expected_merged.safetensors", metadata={"format": "pt"})


def write_expected(case, root):
    """Writes batch.json, expected.json, expected.safetensors (and adapter/) of a case."""
    folder = root / case.name
    if case.same_as:
        check_same(case, root)
        for name in ("batch.json", "expected.json", "expected.safetensors"):
            gm.link(folder / name, root / case.same_as / name)
        return
    if case.lora:
        write_adapter(case, folder)
    rows = gm.make_rows(case)
    adapter = folder / "adapter" if case.lora else None
    runs = {p: run(load(folder, p, adapter), rows, p) for p in PRECISIONS}
    truth = runs["f64"]
    row = max(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
    first = max(0, len(rows[row]["input_ids"]) - 6)
    for one in runs.values():
        one["stored_logits"] = one["logits"][row, first : len(rows[row]["input_ids"])]
    gm.write_rows(folder / "batch.json", {}, rows)
    expected = dict(loss_sum=truth["loss_sum"], count=truth["count"], loss_mean=truth["loss_sum"] / truth["count"],
                    loss_mean_f32=runs["f32"]["loss_sum"] / truth["count"],
                    grad_norm=sum(g.square().sum().item() for g in truth["grads"].values()) ** 0.5,
                    **(dict(aux_loss=truth["aux_loss"]) if truth["aux_loss"] else {}), logits_row=row, logits_first_position=first, spread=compare(runs))
    write_expectations(folder / "expected.json", expected)
    tensors = kept(case, truth["grads"]) | {"logits": sums(truth["stored_logits"])}
    save_file(tensors, folder / "expected.safetensors", metadata={"format": "pt"})
    if case.lora and "target_parameters" in case.lora and case.config["model_type"] != "gpt_oss":
        write_merged(folder)


def check_same(case, root):
    """Checks that both forms of a config.json mean the same to transformers."""
    rows = json.loads((root / case.same_as / "batch.json").read_text())["rows"]
    got = [run(load(root / name, "f64"), rows, "f64")["loss_sum"] for name in (case.name, case.same_as)]
    assert got[0] == got[1], (case.name, got)


PROMPTS = ([5], [7, 11, 3], [20, 21, 22, 23, 24, 25, 26], [9, 40, 9, 41, 9, 42, 9, 43, 9, 44, 9])
GENERATION = ("llama_gqa3_tied", "mistral_window", "qwen3_gqa7_tied", "gemma2", "qwen3_moe", "smollm3", "olmo2",
              "granite", "gemma3", "mixtral", "phi3", "phi3_longrope", "gpt_oss", "qwen2_moe", "olmo3", "exaone4",
              "ministral3", "hunyuan", "olmoe")


def greedy(model, prompt, penalty):
    """Up to 12 ids (an end token is included and ends the answer), and the smallest margin of a chosen id over the
    second best."""
    with wide(), torch.no_grad():
        out = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, repetition_penalty=penalty,
                             eos_token_id=2, pad_token_id=0, return_dict_in_generate=True, output_scores=True)
    leads = [(s[0].topk(2).values[0] - s[0].topk(2).values[1]).item() for s in out.scores]
    return dict(prompt=prompt, repetition_penalty=penalty, ids=out.sequences[0, len(prompt):].tolist(),
                smallest_lead=short(min(leads)))


def write_generation(name, root):
    model = load(root / name, "f64")
    rows = [greedy(model, p, penalty) for penalty in (1.0, 1.3) for p in PROMPTS]
    gm.write_rows(root / name / "generation.json", dict(max_new_tokens=12, eos_token_id=2), rows)
