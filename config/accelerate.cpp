#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "config/keys.h"
#include "config/launchers.h"

namespace qtrain {
namespace {

/// Members of fsdp_config, without the prefix fsdp_ that accelerate writes. With one device nothing is sharded.
constexpr std::string_view kFsdpKeys[] = {"activation_checkpointing",
                                          "auto_wrap_policy",
                                          "backward_prefetch",
                                          "backward_prefetch_policy",
                                          "cpu_offload",
                                          "cpu_ram_efficient_loading",
                                          "forward_prefetch",
                                          "limit_all_gathers",
                                          "min_num_params",
                                          "offload_params",
                                          "reshard_after_forward",
                                          "sharding_strategy",
                                          "state_dict_type",
                                          "sync_module_states",
                                          "transformer_layer_cls_to_wrap",
                                          "use_orig_params",
                                          "version",
                                          "xla",
                                          "xla_fsdp_grad_ckpt",
                                          "xla_fsdp_settings",
                                          "xla_fsdp_v2"};

/// Words of `fsdp` as it was written before it became a switch.
constexpr std::string_view kFsdpWords[] = {"full_shard",         "shard_grad_op", "no_shard", "hybrid_shard",
                                           "hybrid_shard_zero2", "auto_wrap",     "offload"};

/// Keys of an accelerate file about machines and processes.
constexpr std::string_view kAccelerateInert[] = {"compute_environment",
                                                 "debug",
                                                 "deepspeed_config.deepspeed_exclusion_filter",
                                                 "deepspeed_config.deepspeed_hostfile",
                                                 "deepspeed_config.deepspeed_inclusion_filter",
                                                 "deepspeed_config.deepspeed_moe_layer_cls_names",
                                                 "deepspeed_config.deepspeed_multinode_launcher",
                                                 "deepspeed_config.zero3_init_flag",
                                                 "distributed_type",
                                                 "downcast_bf16",
                                                 "dynamo_backend",
                                                 "dynamo_config",
                                                 "enable_cpu_affinity",
                                                 "gpu_ids",
                                                 "machine_rank",
                                                 "main_process_ip",
                                                 "main_process_port",
                                                 "main_training_function",
                                                 "mpirun_config",
                                                 "num_cpu_threads_per_process",
                                                 "num_machines",
                                                 "parallelism_config",
                                                 "rdzv_backend",
                                                 "rdzv_conf",
                                                 "same_network",
                                                 "tpu_env",
                                                 "tpu_name",
                                                 "tpu_use_cluster",
                                                 "tpu_use_sudo",
                                                 "tpu_vm",
                                                 "tpu_zone",
                                                 "command_file",
                                                 "commands",
                                                 "ipex_config"};

/// What accelerate calls the parts of a DeepSpeed config.
struct AccelerateName {
  std::string_view theirs, deepspeed;
};
constexpr auto kAccelerateDeepspeed = std::to_array<AccelerateName>(
    {{"zero_stage", "zero_optimization.stage"},
     {"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
     {"offload_param_device", "zero_optimization.offload_param.device"},
     {"offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
     {"offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
     {"gradient_accumulation_steps", "gradient_accumulation_steps"},
     {"gradient_clipping", "gradient_clipping"},
     {"zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save"}});

constexpr std::string_view kDeepspeedPart = "deepspeed_config.", kFsdpPart = "fsdp_config.", kFsdpPrefix = "fsdp_";

bool is_true_word(const Json& value) {
  return value == true || value == "true" || value == "True";
}

}  // namespace

void LauncherReader::fsdp(const Setting* chosen, const Setting* options, const ConfigDocument& config) {
  const bool on = chosen && !says_nothing(chosen->value);
  if (options && !says_nothing(options->value)) {
    if (on) return fsdp_words(*chosen), open(*options, config, "fsdp_config", [&](auto& part) { fsdp_options(part); });
    draft_.remarks.push_back(fmt::format("{}: \"{}\" has no effect without fsdp", options->place, options->written));
  } else if (on) {
    fsdp_words(*chosen);
  }
}

void LauncherReader::fsdp_words(const Setting& chosen) {
  if (is_true_word(chosen.value)) return;
  std::vector<std::string> words;
  std::istringstream text(chosen.value.is_string() ? chosen.value.get<std::string>() : "");
  for (std::string word; text >> word;) words.push_back(word);
  const Json list = chosen.value.is_array() ? chosen.value : Json::array();
  for (const Json& word : list) words.push_back(word.is_string() ? word.get<std::string>() : show(word));
  if (words.empty()) words.push_back(show(chosen.value));
  for (const std::string& word : words) {
    const Leaf leaf{word, chosen.written, chosen.place, word};
    if (word == "offload") set(leaf, "optimizer_offload", true);
    if (std::find(std::begin(kFsdpWords), std::end(kFsdpWords), word) == std::end(kFsdpWords))
      refuse(leaf, fmt::format("the words of fsdp are {}", fmt::join(kFsdpWords, ", ")), "use true and fsdp_config");
  }
  draft_.remarks.push_back(fmt::format("{}: \"{}\" shards over several devices; on one there is nothing to shard",
                                       chosen.place, chosen.written));
}

void LauncherReader::fsdp_options(const LauncherPart& part) {
  for (const Leaf& leaf : leaves_of(part)) fsdp_leaf(leaf);
  tell_ignored(part, "FSDP");
}

void LauncherReader::fsdp_leaf(Leaf leaf) {
  if (leaf.key.starts_with(kFsdpPrefix)) leaf.key.erase(0, kFsdpPrefix.size());
  if (leaf.is("offload_params") || leaf.is("cpu_offload")) {
    if (is_true_word(leaf.value)) set(leaf, "optimizer_offload", true);
  } else if (leaf.is("activation_checkpointing")) {
    const Setting* given = draft_.find("gradient_checkpointing");
    if (is_true_word(leaf.value) && !(given && given->value.is_string())) set(leaf, "gradient_checkpointing", true);
  } else if (leaf.key.starts_with("xla") && is_true_word(leaf.value)) {
    refuse(leaf, "there is no XLA");
  } else if (std::any_of(std::begin(kFsdpKeys), std::end(kFsdpKeys), [&](auto key) { return covers(key, leaf.key); })) {
    ignore(leaf);
  } else {
    unknown(leaf, kFsdpKeys);
  }
}

void LauncherReader::accelerate(const LauncherPart& part) {
  for (const Leaf& leaf : leaves_of(part)) accelerate_leaf(leaf, part);
  tell_ignored(part, "accelerate");
}

void LauncherReader::accelerate_leaf(const Leaf& leaf, const LauncherPart& part) {
  if (leaf.is("deepspeed_config.deepspeed_config_file"))
    return open({leaf.written, leaf.place, leaf.value}, part.document, "a DeepSpeed config",
                [&](const LauncherPart& file) { deepspeed(file); });
  for (const auto& [theirs, name] : kAccelerateDeepspeed)
    if (leaf.key == std::string(kDeepspeedPart) + std::string(theirs))
      return deepspeed_leaf({std::string(name), leaf.written, leaf.place, leaf.value});
  if (leaf.key.starts_with(kFsdpPart))
    return fsdp_leaf({leaf.key.substr(kFsdpPart.size()), leaf.written, leaf.place, leaf.value});
  if (leaf.is("mixed_precision")) return precision(leaf);
  if (leaf.is("num_processes")) return processes(leaf);
  if (leaf.is("use_cpu")) return is_true_word(leaf.value) ? set(leaf, "device", "cpu") : void();
  if (covers("megatron_lm_config", leaf.key) || covers("fp8_config", leaf.key))
    return says_nothing(leaf.value) ? void() : refuse(leaf, "neither Megatron nor FP8 training is available");
  if (std::none_of(std::begin(kAccelerateInert), std::end(kAccelerateInert),
                   [&](auto k) { return covers(k, leaf.key); }) &&
      !leaf.is("deepspeed_config") && !leaf.is("fsdp_config"))
    unknown(leaf, kAccelerateInert);
}

// As in transformers, the arguments of the training win.
void LauncherReader::precision(const Leaf& leaf) {
  if (leaf.value == "no" || says_nothing(leaf.value)) return;
  if (leaf.value != "bf16" && leaf.value != "fp16")
    return refuse(leaf, "products are in float32, bf16 or fp16", "use no, bf16 or fp16");
  for (const char* key : {"bf16", "fp16"}) {
    const Setting* given = draft_.find(key);
    if (!given) continue;
    if ((given->value == true) != (leaf.value == key))
      draft_.remarks.push_back(fmt::format("{}: \"{}\" {} has no effect: \"{}\" is {} ({})", leaf.place, leaf.written,
                                           show(leaf.value), given->written, show(given->value), given->place));
    return;
  }
  draft_.offer(leaf.value.get<std::string>(), {leaf.written, leaf.place, true});
}

void LauncherReader::processes(const Leaf& leaf) {
  const Setting* ranks = draft_.find("nproc");
  if (!leaf.value.is_number_integer() || leaf.value <= 1 || (ranks && ranks->value == leaf.value)) return;
  draft_.remarks.push_back(
      fmt::format("{}: \"{}\" is {} there and nproc {} here: an update sees fewer rows; gradient_accumulation_steps "
                  "makes up for it",
                  leaf.place, leaf.written, show(leaf.value), ranks ? show(ranks->value) : "1"));
}

}  // namespace qtrain
