"""Writes goldens/rope.json: inverse frequencies and attention factors of transformers for the rotary settings of known
models. Needs the packages of tests/golden/requirements.txt: python make_rope_goldens.py"""

import json
import pathlib
from copy import deepcopy

from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

BASE = dict(hidden_size=64, num_attention_heads=1, num_key_value_heads=1, num_hidden_layers=1,
            intermediate_size=64, vocab_size=8)
LLAMA31 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=8192)
LONGROPE = dict(max_position_embeddings=131072, original_max_position_embeddings=4096, partial_rotary_factor=0.75,
                rope_scaling=dict(type="longrope", short_factor=[1 + i / 16 for i in range(24)],
                                  long_factor=[1 + i * i / 9 for i in range(24)]))
# name: (family, longest sequence, config.json fields in the spelling of version 4)
CASES = {
    "llama31": ("llama", 1, dict(head_dim=128, rope_theta=5e5, max_position_embeddings=131072, rope_scaling=LLAMA31)),
    "llama32_factor32": ("llama", 1, dict(head_dim=64, rope_theta=5e5, max_position_embeddings=131072,
                                          rope_scaling=LLAMA31 | dict(factor=32.0))),
    "linear": ("llama", 1, dict(head_dim=128, max_position_embeddings=4096, rope_scaling=dict(type="linear", factor=4.0))),
    "dynamic_short": ("llama", 4000, dict(head_dim=128, max_position_embeddings=4096,
                                          rope_scaling=dict(type="dynamic", factor=2.0))),
    "dynamic_long": ("llama", 9000, dict(head_dim=128, max_position_embeddings=4096,
                                         rope_scaling=dict(type="dynamic", factor=2.0))),
    "qwen3_yarn": ("qwen3", 1, dict(head_dim=128, rope_theta=1e6, max_position_embeddings=131072,
                                    rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768))),
    "qwen2_yarn": ("qwen2", 1, dict(rope_theta=1e6, max_position_embeddings=32768,
                                    rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=32768))),
    "yarn_mscale": ("llama", 1, dict(head_dim=64, rope_theta=1e4, max_position_embeddings=163840,
                                     rope_scaling=dict(type="yarn", factor=40.0, original_max_position_embeddings=4096,
                                                       beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.707))),
    "yarn_not_truncated": ("llama", 1, dict(head_dim=64, rope_theta=1.5e5, max_position_embeddings=131072,
                                            rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0,
                                                              truncate=False, original_max_position_embeddings=4096))),
    "yarn_outer_length": ("llama", 1, dict(head_dim=64, max_position_embeddings=16384, original_max_position_embeddings=2048,
                                           rope_scaling=dict(type="yarn", factor=8.0, original_max_position_embeddings=4096))),
    # Phi-4-mini, except for its 48 factors.
    "longrope_short": ("phi3", 4096, LONGROPE),
    "longrope_long": ("phi3", 4097, LONGROPE),
    "longrope_factors": ("phi3", 5000, LONGROPE | dict(rope_scaling=LONGROPE["rope_scaling"] | dict(
        factor=16.0, attention_factor=1.25))),
}


def golden(name):
    family, longest, fields = CASES[name]
    config = AutoConfig.for_model(family, **deepcopy(BASE | fields))
    kind = config.rope_parameters["rope_type"]
    frequencies, attention = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=longest)
    return dict(name=name, longest=longest, config=dict(model_type=family) | BASE | fields,
                attention_factor=attention, inv_freq=[float(f"{x:.9g}") for x in frequencies.tolist()])


if __name__ == "__main__":
    out = pathlib.Path(__file__).parent / "goldens" / "rope.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text("[\n" + ",\n".join(json.dumps(golden(n)) for n in CASES) + "\n]\n")
