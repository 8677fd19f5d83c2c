"""Writes goldens/config_defaults.json: for each model type, the config.json that transformers creates from its class
alone, which contains the values for keys that a file omits. Needs the packages of tests/golden/requirements.txt: python
make_config_defaults.py"""

import json
import pathlib

from transformers import AutoConfig

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "granite", "gemma2", "gemma3_text", "qwen3_moe",
               "mixtral", "phi3", "gpt_oss", "qwen2_moe", "olmo3", "exaone4", "ministral",
               "ministral3", "hunyuan_v1_dense", "olmoe")
# Keys that do not belong to the model, or exist only in version 5.
OTHERS = ("_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "is_encoder_decoder", "output_attentions",
          "output_hidden_states", "pretraining_tp", "problem_type", "return_dict", "transformers_version", "use_cache",
          "_sliding_window_pattern", "id2label", "label2id")


def main():
    lines = []
    for model_type in MODEL_TYPES:
        config = AutoConfig.for_model(model_type).to_dict()
        fields = {k: v for k, v in config.items() if k not in OTHERS}
        lines.append(f"{json.dumps(model_type)}: {json.dumps(fields, sort_keys=True)}")
    target = pathlib.Path(__file__).parent / "goldens" / "config_defaults.json"
    target.write_text("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
