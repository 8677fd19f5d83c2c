#include "config/foreign_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/keys.h"

namespace qtrain {
namespace {

/// Files that lie beside configs and are given in their place.
struct ForeignFile {
  std::string_view what;
  std::array<std::string_view, 6> keys;          ///< two of these say so
  std::string_view key;                          ///< of a config, that names such a file or its folder
  std::array<std::string_view, 5> objects = {};  ///< keys that count too where they hold objects
};
constexpr auto kForeignFiles = std::to_array<ForeignFile>({
    {"a DeepSpeed configuration",
     {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "wall_clock_breakdown",
      "gradient_clipping", "steps_per_print"},
     "deepspeed",
     {"zero_optimization", "fp16", "bf16", "optimizer", "scheduler"}},
    {"a configuration of accelerate",
     {"compute_environment", "distributed_type", "num_machines", "machine_rank", "main_training_function",
      "rdzv_backend"},
     "accelerate_config"},
    {"a model's config.json",
     {"architectures", "model_type", "hidden_size", "num_hidden_layers", "vocab_size", "transformers_version"},
     "model_name_or_path"},
    {"the configuration of an adapter that was trained",
     {"peft_type", "peft_version", "auto_mapping", "inference_mode", "base_model_name_or_path", "task_type"},
     "adapter_name_or_path"},
});

/// Whether a key is one of a config that names a model, rows or an output directory, under any of its names.
bool is_of_configs(std::string_view name) {
  constexpr std::array<std::string_view, 9> kOfConfigs{"model_name_or_path", "dataset_name", "dataset_mixture",
                                                       "output_dir",         "datasets",     "base_model",
                                                       "base_models",        "training",     "pretraining_dataset"};
  if (name == "base_model_name_or_path") return false;  // adapters that were trained have it too
  return std::ranges::find(kOfConfigs, canonical_key(name)) != kOfConfigs.end();
}

bool says_what_is_trained(const Json& document) {
  for (const auto& [key, value] : document.items())
    if (is_of_configs(key)) return true;
  return false;
}

}  // namespace

void require_config(const Json& document, std::string_view name) {
  if (says_what_is_trained(document)) return;
  for (const ForeignFile& file : kForeignFiles) {
    const auto held = std::count_if(file.keys.begin(), file.keys.end(),
                                    [&](std::string_view key) { return document.contains(std::string(key)); });
    const auto objects = std::count_if(file.objects.begin(), file.objects.end(), [&](std::string_view key) {
      const auto at = document.find(std::string(key));
      return at != document.end() && at->is_object();
    });
    if (held + objects < 2) continue;
    const std::string folder(name.substr(0, name.find_last_of('/') == name.npos ? 0 : name.find_last_of('/')));
    const bool whole = file.key.ends_with("_path");  // the folder is named, not the file
    fail(ErrorKind::usage,
         {.cause = fmt::format("this is {}, which does not say what is trained on what", file.what),
          .place = std::string(name),
          .remedy = fmt::format("write a config that names it: {{\"model_name_or_path\": ..., \"dataset_name\": ..., "
                                "\"{}\": \"{}\"}}",
                                file.key, whole ? (folder.empty() ? "." : folder) : std::string(name))});
  }
}

}  // namespace qtrain
