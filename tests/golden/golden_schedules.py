"""Learning rates of every schedule, obtained from transformers as Trainer does."""

import torch
from transformers import get_scheduler

import golden_models as gm

COMMON = dict(learning_rate=1e-3, max_steps=12, warmup_steps=3)
SCHEDULES = [
    dict(lr_scheduler_type="linear"),
    dict(lr_scheduler_type="linear", warmup_steps=0),
    dict(lr_scheduler_type="linear", warmup_steps=12),
    dict(lr_scheduler_type="linear", max_steps=1, warmup_steps=0),
    dict(lr_scheduler_type="cosine"),
    dict(lr_scheduler_type="cosine", lr_scheduler_kwargs=dict(num_cycles=1.25)),
    dict(lr_scheduler_type="cosine_with_restarts"),
    dict(lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs=dict(num_cycles=3)),
    dict(lr_scheduler_type="polynomial"),
    dict(lr_scheduler_type="polynomial", lr_scheduler_kwargs=dict(lr_end=1e-5, power=2.0)),
    dict(lr_scheduler_type="constant"),
    dict(lr_scheduler_type="constant_with_warmup"),
    dict(lr_scheduler_type="inverse_sqrt"),
    dict(lr_scheduler_type="inverse_sqrt", warmup_steps=0),
    dict(lr_scheduler_type="inverse_sqrt", lr_scheduler_kwargs=dict(timescale=6)),
    dict(lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs=dict(min_lr=1e-4)),
    dict(lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs=dict(min_lr_rate=0.2, num_cycles=0.75)),
    dict(lr_scheduler_type="cosine_warmup_with_min_lr", lr_scheduler_kwargs=dict(min_lr_rate=0.1)),
    dict(lr_scheduler_type="cosine_warmup_with_min_lr",
         lr_scheduler_kwargs=dict(min_lr=1e-4, warmup_lr_rate=0.3)),
    dict(lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs=dict(num_decay_steps=4)),
    dict(lr_scheduler_type="warmup_stable_decay",
         lr_scheduler_kwargs=dict(num_decay_steps=4, decay_type="linear", min_lr_ratio=0.1)),
    dict(lr_scheduler_type="warmup_stable_decay",
         lr_scheduler_kwargs=dict(num_decay_steps=4, decay_type="1-sqrt", warmup_type="1-sqrt")),
    dict(lr_scheduler_type="warmup_stable_decay",
         lr_scheduler_kwargs=dict(num_decay_steps=4, num_stable_steps=3, warmup_type="cosine", num_cycles=0.25,
                                  min_lr_ratio=0.2)),
]


def learning_rates(config):
    """The rate of each update, as Trainer logs it."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config["learning_rate"])
    schedule = get_scheduler(config["lr_scheduler_type"], optimizer, num_warmup_steps=config["warmup_steps"],
                             num_training_steps=config["max_steps"],
                             scheduler_specific_kwargs=dict(config.get("lr_scheduler_kwargs", {})))
    rates = []
    for _ in range(config["max_steps"]):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def make(root):
    rows = [dict(config=COMMON | s, learning_rates=learning_rates(COMMON | s)) for s in SCHEDULES]
    gm.write_rows(root / "schedules.json", {}, rows)
    print("schedules", flush=True)
