#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "config/keys.h"
#include "config/launchers.h"
#include "optim/table.h"

namespace qtrain {
namespace {

/// Values that mean the same as a key of ours.
struct DeepspeedKey {
  std::string_view name, key;
};
constexpr auto kDeepspeedKeys = std::to_array<DeepspeedKey>({
    {"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
    {"gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"gradient_clipping", "max_grad_norm"},
    {"bf16.enabled", "bf16"},
    {"bfloat16.enabled", "bf16"},
    {"fp16.enabled", "fp16"},
    {"optimizer.params.lr", "learning_rate"},
    {"optimizer.params.eps", "adam_epsilon"},
    {"optimizer.params.weight_decay", "weight_decay"},
    {"scheduler.params.warmup_max_lr", "learning_rate"},
});

/// Parts about several devices, about how things are computed, and about reports.
constexpr std::string_view kDeepspeedInert[] = {"activation_checkpointing",
                                                "aio",
                                                "amp.opt_level",
                                                "autotuning",
                                                "bf16",
                                                "bfloat16",
                                                "checkpoint",
                                                "comms_config",
                                                "comms_logger",
                                                "communication_data_type",
                                                "csv_monitor",
                                                "data_types",
                                                "dataloader_drop_last",
                                                "disable_allgather",
                                                "dump_state",
                                                "flops_profiler",
                                                "fp16",
                                                "gradient_predivide_factor",
                                                "memory_breakdown",
                                                "monitor_config",
                                                "prescale_gradients",
                                                "seq_parallel_communication_data_type",
                                                "sparse_gradients",
                                                "steps_per_print",
                                                "tensorboard",
                                                "timers",
                                                "torch_autocast",
                                                "train_steps",
                                                "wall_clock_breakdown",
                                                "wandb",
                                                "zero_allow_untested_optimizer",
                                                "zero_force_ds_cpu_optimizer",
                                                "optimizer.params.torch_adam",
                                                "optimizer.params.adam_w_mode",
                                                "optimizer.params.bias_correction",
                                                "optimizer.legacy_fusion"};

/// Members of zero_optimization: with one device there is nothing to share out.
constexpr std::string_view kZeroKeys[] = {"allgather_bucket_size",
                                          "allgather_partitions",
                                          "contiguous_gradients",
                                          "elastic_checkpoint",
                                          "gather_16bit_weights_on_model_save",
                                          "grad_hooks",
                                          "ignore_unused_parameters",
                                          "leaf_module",
                                          "legacy_stage1",
                                          "load_from_fp32_weights",
                                          "log_trace_cache_warnings",
                                          "max_live_parameters",
                                          "max_reuse_distance",
                                          "memory_efficient_linear",
                                          "mics_hierarchical_params_gather",
                                          "mics_shard_size",
                                          "model_persistence_threshold",
                                          "module_granularity_threshold",
                                          "offload_optimizer",
                                          "offload_param",
                                          "overlap_comm",
                                          "override_module_apply",
                                          "param_persistence_threshold",
                                          "pipeline_loading_checkpoint",
                                          "prefetch_bucket_size",
                                          "reduce_bucket_size",
                                          "reduce_scatter",
                                          "round_robin_gradients",
                                          "stage",
                                          "stage3_gather_16bit_weights_on_model_save",
                                          "stage3_gather_fp16_weights_on_model_save",
                                          "stage3_max_live_parameters",
                                          "stage3_max_reuse_distance",
                                          "stage3_module_granularity_threshold",
                                          "stage3_param_persistence_threshold",
                                          "stage3_prefetch_bucket_size",
                                          "sub_group_size",
                                          "use_all_reduce_for_fetch_params",
                                          "use_multi_rank_bucket_allreduce",
                                          "zero_hpz_partition_size",
                                          "zero_quantized_gradients",
                                          "zero_quantized_nontrainable_weights",
                                          "zero_quantized_weights",
                                          "zenflow"};

/// Parts that change what is computed, and are refused where they are enabled (or hold anything).
struct DeepspeedSwitch {
  std::string_view name, why;
};
constexpr auto kDeepspeedRefused = std::to_array<DeepspeedSwitch>({
    {"amp", "there is no Apex; use bf16 or fp16"},
    {"compression_training", "compression is not available"},
    {"curriculum_learning", "rows come in the order of train_sampling_strategy"},
    {"data_efficiency", "rows come in the order of train_sampling_strategy"},
    {"eigenvalue", "compression is not available"},
    {"elasticity", "the batch does not depend on the number of devices"},
    {"progressive_layer_drop", "all layers are trained"},
    {"sparse_attention", "attention is dense"},
    {"tensor_parallel", "tensor parallelism is not available"},
    {"quantize_training", "compression is not available"},
});

struct DeepspeedName {
  std::string_view theirs, ours;
};
constexpr auto kDeepspeedOptimizers = std::to_array<DeepspeedName>({{"adam", "adamw_torch"},
                                                                    {"adamw", "adamw_torch"},
                                                                    {"fusedadam", "adamw_torch"},
                                                                    {"deepspeedcpuadam", "adamw_torch"},
                                                                    {"lion", "lion_32bit"},
                                                                    {"sgd", "sgd"},
                                                                    {"adagrad", "adagrad"}});
constexpr auto kDeepspeedSchedules = std::to_array<DeepspeedName>(
    {{"warmuplr", "constant_with_warmup"}, {"warmupdecaylr", "linear"}, {"warmupcosinelr", "cosine"}});

std::string_view ours_of(std::span<const DeepspeedName> names, const Json& theirs) {
  if (!theirs.is_string()) return {};
  std::string lower = theirs.get<std::string>();
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [name, ours] : names)
    if (name == lower) return ours;
  return {};
}

/// Names that unknown keys are held against.
std::vector<std::string_view> deepspeed_names() {
  std::vector<std::string_view> names{"train_batch_size",
                                      "optimizer.type",
                                      "optimizer.params.betas",
                                      "scheduler.type",
                                      "scheduler.params.warmup_num_steps",
                                      "zero_optimization"};
  for (const DeepspeedKey& k : kDeepspeedKeys) names.push_back(k.name);
  for (const DeepspeedSwitch& k : kDeepspeedRefused) names.push_back(k.name);
  names.insert(names.end(), std::begin(kDeepspeedInert), std::end(kDeepspeedInert));
  return names;
}

bool any_covers(std::span<const std::string_view> parts, std::string_view key) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return covers(part, key); });
}

constexpr std::string_view kZero = "zero_optimization.";

}  // namespace

void LauncherReader::deepspeed(const LauncherPart& part) {
  const std::vector<Leaf> leaves = leaves_of(part);
  for (const Leaf& leaf : leaves) deepspeed_leaf(leaf);
  for (const Leaf& leaf : leaves)  // which needs the others
    if (leaf.is("train_batch_size")) deepspeed_batch(leaf);
  deepspeed_warmup(leaves);
  tell_ignored(part, "DeepSpeed");
}

void LauncherReader::deepspeed_leaf(const Leaf& leaf) {
  if (leaf.is("zero_optimization.offload_param.device") && !says_nothing(leaf.value))
    draft_.remarks.push_back(
        fmt::format("{}: \"{}\" has no effect: weights stay on the device, load_in_4bit makes them smaller", leaf.place,
                    leaf.written));
  if (leaf.is("train_batch_size") || deepspeed_setting(leaf) || deepspeed_refused(leaf)) return;
  if (leaf.key.starts_with("scheduler.")) return deepspeed_schedule(leaf);
  if (leaf.key.starts_with(kZero)) {
    const std::string member = leaf.key.substr(kZero.size());
    return any_covers(kZeroKeys, member) ? ignore(leaf)
                                         : unknown({member, leaf.written, leaf.place, leaf.value}, kZeroKeys);
  }
  any_covers(kDeepspeedInert, leaf.key) ? ignore(leaf) : unknown(leaf, deepspeed_names());
}

/// Whether the key is one that sets something; "auto" leaves it to the arguments.
bool LauncherReader::deepspeed_setting(const Leaf& leaf) {
  const bool automatic = leaf.value == "auto";
  for (const auto& [name, key] : kDeepspeedKeys)
    if (leaf.is(name)) return automatic || (set(leaf, std::string(key), leaf.value), true);
  if (leaf.is("optimizer.type")) {
    deepspeed_optimizer(leaf);
    return true;
  }
  if (leaf.is("optimizer.params.betas")) {
    const bool pair = leaf.value.is_array() && leaf.value.size() == 2;
    if (!automatic && !pair) refuse(leaf, "betas are two numbers", "use \"auto\"");
    if (pair) set(leaf, "adam_beta1", leaf.value[0]), set(leaf, "adam_beta2", leaf.value[1]);
    return true;
  }
  const bool offloads =
      leaf.is("zero_optimization.offload_optimizer.device") || leaf.is("zero_optimization.cpu_offload");
  if (offloads) offload(leaf);
  return offloads;
}

// Names of one optimizer that differ in how it is computed do not contradict each other.
void LauncherReader::deepspeed_optimizer(const Leaf& leaf) {
  const auto ours = ours_of(kDeepspeedOptimizers, leaf.value);
  if (ours.empty()) return refuse(leaf, "there is no such optimizer", "remove the block and set optim");
  const Setting* given = draft_.find("optim");
  const auto* same = given && given->value.is_string() ? find_optimizer(given->value.get<std::string>()) : nullptr;
  if (!same || same->rule != find_optimizer(ours)->rule) set(leaf, "optim", ours);
}

bool LauncherReader::deepspeed_refused(const Leaf& leaf) {
  const bool adam = leaf.is("optimizer.params.adam_w_mode") || leaf.is("optimizer.params.bias_correction");
  if (adam && leaf.value == false) {
    refuse(leaf, "AdamW corrects its moments and decouples the weight decay");
    return true;
  }
  for (const auto& [name, why] : kDeepspeedRefused) {
    if (!covers(name, leaf.key)) continue;
    const bool decides = leaf.is(name) || leaf.is(std::string(name) + ".enabled");
    if (decides && !says_nothing(leaf.value)) refuse(leaf, std::string(why));
    return true;
  }
  return false;
}

void LauncherReader::offload(const Leaf& leaf) {
  if (says_nothing(leaf.value)) return;
  if (leaf.value != "cpu" && leaf.value != "nvme" && leaf.value != true)
    return refuse(leaf, "the optimizer's state is on the device or in the memory of the host", "use cpu or none");
  set(leaf, "optimizer_offload", true);
  if (leaf.value == "nvme")
    draft_.remarks.push_back(
        fmt::format("{}: the optimizer's state goes to the host's memory, not to disk", leaf.place));
}

// DeepSpeed has train_batch_size = micro-batch x accumulation x devices, and fills in the one that is missing.
void LauncherReader::deepspeed_batch(const Leaf& leaf) {
  if (leaf.value == "auto") return;
  const auto number = [&](const char* key) {
    const Setting* s = draft_.find(key);
    return s && s->value.is_number() ? std::max(0.0, s->value.get<double>()) : 0;
  };
  if (!leaf.value.is_number()) return refuse(leaf, "a batch is a number of rows", "use \"auto\"");
  const double total = leaf.value.get<double>(), micro = number("per_device_train_batch_size"),
               windows = number("gradient_accumulation_steps"), ranks = std::max(1.0, number("nproc"));
  const double known = std::max(1.0, micro) * std::max(1.0, windows) * ranks;
  const bool divides = total > 0 && std::fmod(total, known) == 0 && (micro > 0 || windows > 0);
  if (divides && windows == 0)
    return draft_.offer("gradient_accumulation_steps", {leaf.written, leaf.place, total / known});
  if (divides && micro == 0)
    return draft_.offer("per_device_train_batch_size", {leaf.written, leaf.place, total / known});
  if (total == known && micro > 0) return;
  draft_.problem(
      leaf.place,
      fmt::format("\"{}\" is {}, but per_device_train_batch_size x gradient_accumulation_steps x nproc is {}",
                  leaf.written, show(leaf.value), micro > 0 && windows > 0 ? fmt::format("{}", known) : "not given"),
      "use \"auto\", or numbers whose product it is");
}

void LauncherReader::deepspeed_schedule(const Leaf& leaf) {
  const bool automatic = leaf.value == "auto", number = leaf.value.is_number();
  if (leaf.is("scheduler.type")) {
    const auto ours = ours_of(kDeepspeedSchedules, leaf.value);
    if (ours.empty()) return refuse(leaf, "there is no such schedule", "remove the block and set lr_scheduler_type");
    return set(leaf, "lr_scheduler_type", ours);
  }
  if (leaf.is("scheduler.params.warmup_num_steps")) {
    if (automatic) return;
    if (const Setting* ratio = draft_.find("warmup_ratio"); ratio && !says_nothing(ratio->value))
      return draft_.problem(leaf.place,
                            fmt::format("\"{}\" is {}, but \"{}\" is {} ({})", leaf.written, show(leaf.value),
                                        ratio->written, show(ratio->value), ratio->place),
                            "use \"auto\", or remove the latter");
    return set(leaf, "warmup_steps", leaf.value);
  }
  if (leaf.is("scheduler.params.total_num_steps")) {
    if (automatic || draft_.has("max_steps")) return automatic ? void() : set(leaf, "max_steps", leaf.value);
    return refuse(leaf, "how many steps there are depends on the rows", "use \"auto\", or set max_steps");
  }
  constexpr double kAlmostZero = 1e-7;
  const bool low = leaf.is("scheduler.params.warmup_min_lr") || leaf.is("scheduler.params.warmup_min_ratio");
  if (low && !automatic && !(number && leaf.value.get<double>() <= kAlmostZero))
    return refuse(leaf, "warm-up begins at 0", "use 0");
  if (leaf.is("scheduler.params.cos_min_ratio") && number && leaf.value > 0) {
    draft_.settings.erase("lr_scheduler_type");
    draft_.offer("lr_scheduler_type", {leaf.written, leaf.place, "cosine_with_min_lr"});
    return set(leaf, "lr_scheduler_kwargs", {{"min_lr_rate", leaf.value}});
  }
  if (!low && !leaf.is("scheduler.params.warmup_type") && !leaf.is("scheduler.params.last_batch_iteration") &&
      !leaf.is("scheduler.params.cos_min_ratio"))
    unknown(leaf, deepspeed_names());
}

void LauncherReader::deepspeed_warmup(const std::vector<Leaf>& leaves) {
  const Leaf* type = nullptr;
  for (const Leaf& leaf : leaves) {
    if (leaf.is("scheduler.type")) type = &leaf;
    if (leaf.is("scheduler.params.warmup_type") && leaf.value == "linear") return;
  }
  if (type)
    draft_.remarks.push_back(
        fmt::format("{}: \"{}\": warm-up is linear here; that of DeepSpeed is logarithmic unless warmup_type is linear",
                    type->place, type->written));
}

}  // namespace qtrain
