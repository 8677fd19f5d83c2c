#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/remarks.h"
#include "config/types.h"
#include "core/error.h"
#include "core/json.h"
#include "optim/schedule.h"
#include "optim/table.h"

namespace qtrain {

/// Defaults written here are those of the canonical dialect: SFTConfig and ModelConfig (TRL 1.16) and TrainingArguments
/// (transformers 5.23). What a key means stands once, beside its name in fields.h.

struct ModelSection {
  std::string model_name_or_path;
  std::optional<std::string> adapter_name_or_path;
  std::optional<std::string> tokenizer_name_or_path;
  std::string dtype = "float32";  ///< "float32", "bfloat16", "float16" or "auto"
  std::optional<std::string> chat_template_path;
  std::optional<std::string> template_date;
  std::optional<std::string> eos_token, pad_token;
  bool random_init = false;
  std::optional<double> router_aux_loss_coef;
  std::optional<bool> output_router_logits;
  RouterLossMode router_aux_loss_mode = RouterLossMode::trl;
};

struct DataSection {
  std::vector<std::string> dataset_name;
  std::vector<std::string> eval_dataset_name;
  double eval_split = 0;
  std::optional<std::int64_t> max_samples;
  std::vector<Json> dataset_mixture;
  std::optional<MixStrategy> mix_strategy;
  Json column_mapping = Json::object();
  Json message_property_mappings = Json::object();
  Json role_mapping = Json::object();
  std::string dataset_text_field = "text";
  std::optional<std::int64_t> max_length = 1024;
  KeptEnd truncation_mode = KeptEnd::start;
  bool shuffle_dataset = false;
  bool packing = false;
  Packing packing_strategy = Packing::bfd;
  PackingScope packing_scope = PackingScope::batch;
  bool packing_isolate = false;
  std::optional<bool> eval_packing;
  std::optional<bool> completion_only_loss;
  bool assistant_only_loss = false, last_turn_only_loss = false, skip_empty_answers = false;
  std::string response_template, instruction_template;
  std::optional<std::string> token_cache_dir;
  double token_cache_gb = 50;

  bool has_training_rows() const { return !dataset_name.empty() || !dataset_mixture.empty(); }
  Packing train_packing() const { return packing ? packing_strategy : Packing::none; }
  Packing evaluation_packing() const { return eval_packing.value_or(packing) ? packing_strategy : Packing::none; }
};

struct LoraSection {
  bool use_peft = false;
  std::int64_t lora_r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  /// Module names ("q_proj") and "all-linear", or one regular expression; empty: PEFT's default for the architecture.
  std::vector<std::string> lora_target_modules;
  Json rank_pattern = Json::object(), alpha_pattern = Json::object();  ///< numbers by pattern of module names
  bool use_rslora = false;
  bool use_dora = false;
  std::vector<std::string> lora_modules_to_save;
  bool ensure_weight_tying = false;
  std::optional<double> loraplus_lr_ratio;
  double loraplus_lr_embedding = 1e-6;
};

struct QuantSection {
  bool load_in_4bit = false, load_in_8bit = false;
  std::string bnb_4bit_quant_type = "nf4";
  bool bnb_4bit_use_double_quant = false;
  std::optional<std::string> bnb_4bit_compute_dtype;
  std::int64_t bnb_4bit_blocksize = 64;
  std::vector<std::string> llm_int8_skip_modules;
  CopyChoice dequantized_copy = CopyChoice::automatic;
};

struct TrainingSection {
  std::string output_dir = "trainer_output";
  std::int64_t per_device_train_batch_size = 8, per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  double num_train_epochs = 3;
  std::int64_t max_steps = -1;
  double learning_rate = 2e-5;
  ScheduleKind lr_scheduler_type = ScheduleKind::linear;
  Json lr_scheduler_kwargs = Json::object();
  double warmup_steps = 0, warmup_ratio = 0;
  std::string optim = "adamw_torch_fused";
  std::optional<std::string> optim_args;
  double weight_decay = 0, adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1;
  bool bf16 = true, fp16 = false;
  std::optional<bool> tf32;
  CopyChoice operand_copies = CopyChoice::automatic;
  Recompute gradient_checkpointing;
  bool activation_offloading = false, optimizer_offload = false;
  EvalStrategy logging_strategy = EvalStrategy::steps;
  double logging_steps = 10;
  bool logging_first_step = false;
  std::vector<std::string> report_to;
  bool disable_tqdm = false;
  EvalStrategy eval_strategy = EvalStrategy::no;
  std::optional<double> eval_steps;
  double eval_delay = 0;
  bool eval_on_start = false;
  SaveStrategy save_strategy = SaveStrategy::steps;
  double save_steps = 500;
  std::optional<std::int64_t> save_total_limit;
  bool save_only_model = false;
  bool load_best_model_at_end = false;
  std::optional<std::string> metric_for_best_model;
  std::optional<bool> greater_is_better;
  std::string resume_from_checkpoint = "auto";  ///< "auto", "never" or a checkpoint folder
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;
  Sampling train_sampling_strategy = Sampling::random;
  bool dataloader_drop_last = false;
  std::int64_t dataloader_num_workers = 0;
  std::optional<std::int64_t> dataloader_prefetch_factor;
};

struct RunSection {
  DeviceChoice device = DeviceChoice::automatic;
  std::int64_t nproc = 1;
  std::int64_t threads = 0;
  std::string compute_dtype = "auto";  ///< "auto", "float32" or "bfloat16"
  std::int64_t max_nonfinite_steps = 3;
  std::optional<bool> use_cuda_graphs;
};

struct Config {
  ModelSection model;
  DataSection data;
  LoraSection lora;
  QuantSection quant;
  TrainingSection training;
  RunSection run;
};

struct ResolvedConfig {
  Config value;
  std::string dialect;                        ///< its name in `dialects()`
  std::map<std::string, std::string> origin;  ///< canonical key -> "default (hf)", "config.json:12", "command line"
  Judge judge;                                ///< what is said of it: the dialect, keys that are ignored, ...

  /// Whether the user gave this canonical key (under any of its names) instead of leaving its default.
  bool given(const std::string& key) const {
    const auto it = origin.find(key);
    return it != origin.end() && !it->second.starts_with("default");
  }
};

/// key=value pairs of the command line; dots name nested keys. A value is JSON where it parses, else a string.
using Overrides = std::vector<std::pair<std::string, std::string>>;

/// Reads a config in any of the dialects of docs/config.md. Every error is ErrorKind::usage and names file, line and
/// key: unknown keys (with the nearest), types, ranges, choices, contradictions. All problems found are in the message.
ResolvedConfig load_config(const std::filesystem::path& file, const Overrides& overrides = {});

/// The same from text; `name` stands in messages. For tests and for configs that a command makes up.
ResolvedConfig parse_config(std::string_view text, std::string_view name, const Overrides& overrides = {});

/// A config with everything that is wrong with it.
struct CheckedConfig {
  std::optional<ResolvedConfig> config;  ///< what could be read; keys with problems have their defaults. None: no JSON
  std::vector<ErrorText> problems;
};
CheckedConfig check_config(const std::filesystem::path& file, const Overrides& overrides = {});
/// What load_config would complain about, one entry per problem; empty when the file is fine.
std::vector<ErrorText> config_problems(const std::filesystem::path& file, const Overrides& overrides = {});

/// What the config asks for and this program cannot do yet, one entry per key, and a missing model_name_or_path.
std::vector<ErrorText> unsupported(const ResolvedConfig& config);
/// Throws ErrorKind::usage with all of `unsupported`, if any.
void require_supported(const ResolvedConfig& config);

/// {"dialect": ..., "values": {key: {"value": ..., "origin": ...}}, "ignored": {key: {"value", "origin", "reason"}},
/// "notes": [...], "warnings": [...]}
Json resolved_json(const ResolvedConfig& config);

/// The reference page of all keys, in Markdown.
std::string config_reference();
/// {"keys": {key: {"section", "default", "type", "also": [other names], "meaning"}}}
Json config_keys_json();

/// The canonical key, alias or other known key nearest to an unknown one; empty when nothing is near.
std::string nearest_key(std::string_view key);
/// Whether the name is a config key or an alias of one.
bool is_config_key(std::string_view key);

/// Warm-up steps of a run of max_steps updates: warmup_steps if >= 1, else a share of max_steps (rounded up).
std::int64_t warmup_steps(const TrainingSection& t, std::int64_t max_steps);
/// logging_steps, eval_steps or save_steps in updates: values below 1 are a share of max_steps (rounded up).
std::int64_t interval_steps(double steps, std::int64_t max_steps);

/// The optimizer of a run.
OptimizerOptions optimizer_options(const TrainingSection& t);

}  // namespace qtrain
