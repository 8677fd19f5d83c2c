"""Names and defaults of every key that users' configs may hold, as the reference libraries define them.

    pip install transformers trl peft bitsandbytes accelerate torch
    python make_reference_keys.py [FILE]        # default: data/reference_keys.json beside this script

tests/config/keys_test.cpp holds the program to them: it accepts each key with its default, and its own defaults
are SFTConfig's, TrainingArguments' and LoraConfig's.
"""

import dataclasses
import inspect
import json
import pathlib
import sys

import peft
import transformers
import trl
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
from transformers.training_args import OptimizerNames
from trl.scripts.utils import DatasetMixtureConfig


def plain(value):
    """The value as JSON, with enumerations by name."""
    value = getattr(value, "value", value)
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    return json.loads(json.dumps(value))


def defaults(cls):
    out = {}
    for field in dataclasses.fields(cls):
        default = field.default_factory() if field.default is dataclasses.MISSING else field.default
        out[field.name] = plain(default)
    return out


def signature_defaults(cls):
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {p.name: plain(p.default) for p in parameters if p.default is not inspect.Parameter.empty}


def names(enum):
    return [member.value for member in enum]


def main():
    here = pathlib.Path(__file__).parent / "data" / "reference_keys.json"
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    reference = {
        "versions": {m.__name__: m.__version__ for m in (transformers, trl, peft)},
        "SFTConfig": defaults(trl.SFTConfig),
        "ModelConfig": defaults(trl.ModelConfig),
        "ScriptArguments": defaults(trl.ScriptArguments),
        "DatasetMixtureConfig": defaults(DatasetMixtureConfig),
        "LoraConfig": defaults(peft.LoraConfig),
        "BitsAndBytesConfig": signature_defaults(transformers.BitsAndBytesConfig),
        "optimizers": names(OptimizerNames),
        "schedulers": names(SchedulerType),
        "eval_strategies": names(IntervalStrategy),
        "save_strategies": names(SaveStrategy),
    }
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(reference, indent=1) + "\n")


if __name__ == "__main__":
    main()
