#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "config/dialect.h"
#include "config/document.h"
#include "config/rewrite_rules.h"

/// axolotl: one flat YAML, with lists of data sets.
namespace qtrain {
namespace {

constexpr bool kRefusedKey = true, kRemarkedKey = false, kWarned = true;

constexpr auto kAxolotlInert = std::to_array<InertKey>({
    // model and tokenizer
    {"model_type", kRemarkedKey, "[\"AutoModelForCausalLM\",\"LlamaForCausalLM\",\"MistralForCausalLM\"]",
     "the folder's config.json says what the model is"},
    {"tokenizer_type", kRemarkedKey, "[\"AutoTokenizer\",\"LlamaTokenizer\"]", "tokenizer.json says what it is"},
    {"base_model_config", kRemarkedKey, "[]", "the model's folder has its config.json"},
    {"base_model_ignore_patterns", kRemarkedKey, "[]", "models are local folders"},
    {"revision_of_model", kRemarkedKey, "[]", "models are local folders"},
    {"tokenizer_use_fast", kRemarkedKey, "[true,false]", "there is one tokenizer"},
    {"tokenizer_legacy", kRemarkedKey, "[true,false]", "there is one tokenizer"},
    {"tokenizer_use_mistral_common", kRefusedKey, "[false]", "tokenizers are those of the folder"},
    {"tokenizer_save_jinja_files", kRemarkedKey, "[true,false]", "tokenizer files are copied unchanged"},
    {"type_of_model", kRemarkedKey, "[]", "the folder's config.json says what the model is"},
    {"processor_type", kRemarkedKey, "[]", "models take text only"},
    {"is_*", kRemarkedKey, "[true,false]", "the folder's config.json says what the model is"},
    {"overrides_of_model_config", kRefusedKey, "[{}]", "change the model's config.json"},
    {"model_config", kRefusedKey, "[{}]", "change the model's config.json"},
    {"overrides_of_model_kwargs", kRemarkedKey, "[{}]", "weights are always mapped"},
    {"tokens", kRefusedKey, "[[]]", "the vocabulary stays as it is"},
    {"added_tokens_overrides", kRefusedKey, "[{}]", "the vocabulary stays as it is"},
    {"resize_token_embeddings_to_32x", kRemarkedKey, "[false]", "the vocabulary stays as it is"},
    {"mean_resizing_embeddings", kRemarkedKey, "[true,false]", "the vocabulary stays as it is"},
    {"shrink_embeddings", kRemarkedKey, "[false]", "the vocabulary stays as it is"},
    {"embeddings_skip_upcast", kRemarkedKey, "[true,false]", "what is trained is in float32"},
    {"fix_untrained_tokens", kRefusedKey, "[false,0]", "the vocabulary stays as it is"},
    {"experimental_skip_move_to_device", kRemarkedKey, "[true,false]", "weights are always mapped"},
    {"gptq", kRefusedKey, "[false]", "only bitsandbytes quantization is known"},
    {"gptq_*", kRefusedKey, "[]", "only bitsandbytes quantization is known"},
    {"max_packed_sequence_len", kRefusedKey, "[]", "use sequence_len and sample_packing"},
    {"plugins", kRemarkedKey, "[[]]", "there is no Python to load"},
    {"cut_cross_entropy", kRemarkedKey, "[true,false]", "the loss is always fused"},
    {"liger_*", kRemarkedKey, "[false]", "the loss and the norms are always fused"},
    {"strict", kRemarkedKey, "[true,false]", "unknown keys are always errors"},
    {"device", kRemarkedKey, "[]", "see device and nproc"},
    {"max_memory", kRemarkedKey, "[]", "memory is planned before the first step"},
    {"gpu_memory_limit", kRemarkedKey, "[]", "memory is planned before the first step"},
    {"world_size", kRemarkedKey, "[1]", "ranks are started by nproc"},
    {"ddp", kRemarkedKey, "[false]", "ranks are started by nproc"},
    // data
    {"default_system_message", kRefusedKey, "[]", "a system message belongs into the rows or the chat template"},
    {"eot_tokens", kRemarkedKey, "[]", "answers end as the chat template ends them"},
    {"streaming", kRemarkedKey, "[false]", "files are mapped, never held whole"},
    {"dataset_processes", kRemarkedKey, "[]", "rows are tokenized by all threads"},
    {"dataset_keep_in_memory", kRemarkedKey, "[true,false]", "files are mapped, never held whole"},
    {"dataset_exact_deduplication", kRefusedKey, "[false]", "rows are taken as they are"},
    {"dataset_shard_*", kRefusedKey, "[]", "files are read whole"},
    {"skip_prepare_dataset", kRefusedKey, "[false]", "rows are prepared as their fields say"},
    {"push_dataset_to_hub", kRefusedKey, "[]", "the program does not use the network"},
    {"hf_use_auth_token", kRemarkedKey, "[true,false]", "the program does not use the network"},
    {"shuffle_before_merging_datasets", kRemarkedKey, "[true,false]", "rows are shuffled once they are merged"},
    {"pad_to_sequence_len", kRemarkedKey, "[true,false]", "batches are never padded"},
    {"sample_packing_*", kRemarkedKey, "[false,100000,200]", "rows are packed best fit first, over the whole data"},
    {"multipack_real_batches", kRemarkedKey, "[true,false]", "batches are never padded"},
    {"batch_flattening", kRemarkedKey, "[true,false,\"auto\"]", "batches are never padded"},
    {"pretrain_multipack_*", kRemarkedKey, "[]", "files are mapped, never held whole"},
    {"curriculum_sampling", kRefusedKey, "[false]", "rows come in the order of train_sampling_strategy"},
    {"min_sample_len", kRefusedKey, "[0]", "rows are taken whatever their length"},
    {"max_prompt_len", kRemarkedKey, "[512]", "it is about preferences"},
    {"excess_length_strategy", kRefusedKey, "[\"truncate\"]", "rows that are too long are cut"},
    {"use_pose", kRefusedKey, "[false]", "positions are those of the rows"},
    {"pose_*", kRemarkedKey, "[]", "positions are those of the rows"},
    // how it is computed
    {"attention", kRemarkedKey, "[\"flash\",\"sdpa\",\"eager\",\"xformers\"]", "there is one attention kernel"},
    {"flash_attention", kRemarkedKey, "[true,false]", "there is one attention kernel"},
    {"xformers_attention", kRemarkedKey, "[true,false]", "there is one attention kernel"},
    {"sdp_attention", kRemarkedKey, "[true,false]", "there is one attention kernel"},
    {"flex_attention", kRemarkedKey, "[true,false]", "there is one attention kernel"},
    {"sage_attention", kRefusedKey, "[false]", "attention is not quantized"},
    {"eager_attention", kRemarkedKey, "[true,false]", "there is one attention kernel"},
    {"s2_attention", kRefusedKey, "[false]", "shifted attention is not available"},
    {"flash_attn_*", kRemarkedKey, "[true,false]", "there is one attention kernel"},
    {"flex_attn_*", kRemarkedKey, "[]", "there is one attention kernel"},
    {"flash_optimum", kRemarkedKey, "[false]", "there is one attention kernel"},
    {"attn_implementation", kRemarkedKey, "[\"flash_attention_2\",\"sdpa\",\"eager\"]",
     "there is one attention kernel"},
    {"unsloth_*", kRemarkedKey, "[false]", "the program has its own kernels"},
    {"tiled_mlp*", kRemarkedKey, "[true,false]", "the program has its own kernels"},
    {"lora_mlp_kernel", kRemarkedKey, "[true,false]", "the program has its own kernels"},
    {"lora_qkv_kernel", kRemarkedKey, "[true,false]", "the program has its own kernels"},
    {"lora_o_kernel", kRemarkedKey, "[true,false]", "the program has its own kernels"},
    {"lora_embedding_kernel", kRemarkedKey, "[true,false]", "the program has its own kernels"},
    {"sequence_parallel_degree", kRefusedKey, "[1]", "only data parallelism is planned"},
    {"context_parallel_size", kRefusedKey, "[1]", "only data parallelism is planned"},
    {"tensor_parallel_size", kRefusedKey, "[1]", "only data parallelism is planned"},
    {"dp_*", kRemarkedKey, "[1]", "ranks are started by nproc"},
    {"heads_k_stride", kRemarkedKey, "[1]", "only data parallelism is planned"},
    {"ring_attn_func", kRemarkedKey, "[]", "only data parallelism is planned"},
    {"fp8*", kRefusedKey, "[false]", "FP8 training is not available"},
    {"fsdp_version", kRemarkedKey, "[1,2]", "on one device there is nothing to shard"},
    {"fsdp_final_state_dict_type", kRemarkedKey, "[]", "checkpoints are whole"},
    {"gc_steps", kRemarkedKey, "[]", "memory is planned before the first step"},
    // adapters and optimizer
    {"lora_on_cpu", kRemarkedKey, "[false]", "adapters stay where the model is"},
    {"qlora_sharded_model_loading", kRemarkedKey, "[false]", "weights are always mapped"},
    {"peft", kRefusedKey, "[{}]", "only LoRA and DoRA are available"},
    {"peft_autocast_adapter_dtype", kRemarkedKey, "[true,false]", "adapters are float32"},
    {"relora*", kRefusedKey, "[false,0]", "ReLoRA is not available"},
    {"merge_lora", kRemarkedKey, "[false]", "see qtrain merge"},
    {"merge_method", kRemarkedKey, "[\"memory_efficient\"]", "see qtrain merge"},
    {"unfrozen_parameters", kRefusedKey, "[[]]", "either an adapter or all weights are trained"},
    {"lisa_*", kRefusedKey, "[\"model.layers\"]", "all layers are trained"},
    {"embedding_lr*", kRefusedKey, "[]", "all weights have one learning rate"},
    {"lr_groups", kRefusedKey, "[[]]", "all weights have one learning rate"},
    {"lr_quadratic_warmup", kRefusedKey, "[false]", "warm-up is linear"},
    {"cosine_constant_lr_ratio", kRefusedKey, "[]", "the schedule has no constant part at its end"},
    {"adam_epsilon2", kRemarkedKey, "[]", "it is about CAME"},
    {"adam_beta3", kRemarkedKey, "[]", "it is about CAME"},
    {"torchdistx_path", kRemarkedKey, "[]", "there is no Python to load"},
    {"noisy_embedding_alpha", kRefusedKey, "[]", "NEFTune is not available"},
    {"rl", kRefusedKey, "[]", "only supervised fine-tuning is available"},
    {"rl_beta", kRemarkedKey, "[]", "it is about preferences"},
    {"dpo_*", kRemarkedKey, "[]", "it is about preferences"},
    {"kto_*", kRemarkedKey, "[]", "it is about preferences"},
    {"orpo_alpha", kRemarkedKey, "[]", "it is about preferences"},
    {"trl", kRemarkedKey, "[{}]", "it is about reinforcement learning"},
    {"vllm", kRemarkedKey, "[{}]", "see qtrain generate"},
    {"reward_model", kRefusedKey, "[false]", "only supervised fine-tuning is available"},
    {"process_reward_model", kRefusedKey, "[false]", "only supervised fine-tuning is available"},
    {"num_labels", kRemarkedKey, "[]", "only causal language models are available"},
    {"qat", kRefusedKey, "[]", "quantization-aware training is not available"},
    // reports
    {"early_stopping_patience", kRefusedKey, "[]", "a run goes on to its last step"},
    {"loss_watchdog_*", kRemarkedKey, "[]", "see max_nonfinite_steps"},
    {"do_causal_lm_eval", kRemarkedKey, "[false]", "evaluation gives the loss; see qtrain eval"},
    {"eval_causal_lm_metrics", kRemarkedKey, "[]", "evaluation gives the loss; see qtrain eval"},
    {"do_bench_eval", kRemarkedKey, "[false]", "evaluation gives the loss; see qtrain eval"},
    {"bench_*", kRemarkedKey, "[]", "evaluation gives the loss; see qtrain eval"},
    {"eval_table_size", kRemarkedKey, "[0]", "see qtrain eval --generate"},
    {"eval_max_new_tokens", kRemarkedKey, "[128]", "see qtrain eval --generate"},
    {"generate_samples", kRemarkedKey, "[false]", "see qtrain eval --generate"},
    {"save_first_step", kRemarkedKey, "[false]", "qtrain validate checks that checkpoints can be written"},
    {"profiler_steps*", kRemarkedKey, "[]", "see qtrain bench"},
    {"wandb_project", kRemarkedKey, "[\"\"]", kNotSent, kWarned},
    {"wandb_*", kRemarkedKey, "[\"\"]", "metrics stay in output_dir"},
    {"mlflow_*", kRemarkedKey, "[\"\",false]", kNotSent, kWarned},
    {"hf_mlflow_log_artifacts", kRemarkedKey, "[]", "metrics stay in output_dir"},
    {"comet_*", kRemarkedKey, "[\"\",false]", kNotSent, kWarned},
    {"gradio_*", kRemarkedKey, "[]", "see qtrain serve"},
    {"use_wandb", kRemarkedKey, "[\"\",false]", kNotSent, kWarned},
    {"use_mlflow", kRemarkedKey, "[\"\",false]", kNotSent, kWarned},
    {"use_comet", kRemarkedKey, "[\"\",false]", kNotSent, kWarned},
    {"use_otel_metrics", kRemarkedKey, "[false]", "metrics stay in output_dir"},
    {"otel_*", kRemarkedKey, "[]", "metrics stay in output_dir"},
    {"image_*", kRemarkedKey, "[]", "models take text only"},
    {"use_tensorboard", kRemarkedKey, "[true,false]", "event files are in output_dir/runs"},
    {"use_ray", kRemarkedKey, "[false]", "ranks are started by nproc"},
    {"ray_*", kRemarkedKey, "[]", "ranks are started by nproc"},
    {"resources_per_worker", kRemarkedKey, "[]", "ranks are started by nproc"},
});

RewriteRule numbers_in_text(std::string key) {
  return [key = std::move(key)](const Json& v) {
    return Rewritten{.settings = {{key, v.is_string() ? yaml_plain_value(v.get<std::string>()) : v}}};
  };
}

Rewritten axolotl_bf16(const Json& v) {
  if (v.is_null() || v == "auto") return {};
  return {.settings = {{"bf16", v == "full" ? Json(true) : v}}};
}

Rewritten axolotl_checkpointing(const Json& v) {
  if (v == "offload" || v == "unsloth")
    return {.settings = {{"gradient_checkpointing", true}, {"activation_offloading", true}}};
  if (v == "offload_disk")
    return {.settings = {}, .problem = "inputs of blocks go to the host's memory, not to disk: use \"offload\""};
  return {.settings = {{"gradient_checkpointing", v}}};
}

Rewritten axolotl_offloading(const Json& v) {
  if (v == "disk") return {.settings = {}, .problem = "inputs of blocks go to the host's memory, not to disk"};
  return {.settings = {{"activation_offloading", v == "legacy" ? Json(true) : v}}};
}

/// Arguments of the optimizer as an object or in one text.
Rewritten axolotl_optim_args(const Json& v) {
  if (!v.is_object()) return {.settings = {{"optim_args", v}}};
  std::string text;
  for (const auto& [key, value] : v.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key,
                        value.is_string() ? value.get<std::string>() : show(value));
  return {.settings = {{"optim_args", text}}};
}

Rewritten axolotl_special_tokens(const Json& v) {
  Rewritten out;
  if (v.is_null()) return out;
  if (!v.is_object()) return {.settings = {}, .problem = fmt::format("expected an object, got {}", show(v))};
  for (const auto& [name, token] : v.items()) {
    if (token.is_null()) continue;
    if (name == "eos_token" || name == "pad_token")
      out.settings.emplace_back(name, token);
    else
      out.remarks.push_back(fmt::format("{} {} has no effect: it is that of the model's folder", name, show(token)));
  }
  return out;
}

std::vector<Rewrite> axolotl_rewrites() {
  return {{"adapter", "lora or qlora: use_peft; empty: all weights",
           word_among({{"lora", {{"use_peft", true}}},
                       {"qlora", {{"use_peft", true}, {"load_in_4bit", true}}},
                       {"", {{"use_peft", false}}}})},
          {"lora_model_dir", "adapter_name_or_path", as_key("adapter_name_or_path")},
          {"tokenizer_config", "tokenizer_name_or_path", as_key("tokenizer_name_or_path")},
          {"lora_target_linear", "true: all-linear beside lora_target_modules", pending("lora_target_linear")},
          {"peft_use_rslora", "use_rslora", as_key("use_rslora")},
          {"lora_fan_in_fan_out", "fan_in_fan_out", as_key("fan_in_fan_out")},
          {"peft_use_dora", "use_dora", as_key("use_dora")},
          {"peft_layers_to_transform", "layers_to_transform", as_key("layers_to_transform")},
          {"peft_layers_pattern", "layers_pattern", as_key("layers_pattern")},
          {"peft_init_lora_weights", "init_lora_weights", as_key("init_lora_weights")},
          {"peft_layer_replication", "layer_replication", as_key("layer_replication")},
          {"peft_trainable_token_indices", "trainable_token_indices", as_key("trainable_token_indices")},
          {"peft_ensure_weight_tying", "ensure_weight_tying", as_key("ensure_weight_tying")},
          {"datasets", "dataset_name, or dataset_mixture", training_datasets},
          {"pretraining_dataset", "dataset_name, of plain texts", pretraining_datasets},
          {"test_datasets", "eval_dataset_name", evaluation_datasets},
          {"dataset_prepared_path", "token_cache_dir", as_key("token_cache_dir")},
          {"val_set_size", "eval_split", as_key("eval_split")},
          {"shuffle_merged_datasets", "shuffle_dataset", as_key("shuffle_dataset")},
          {"train_on_inputs", "true: loss on all tokens", loss_on_prompt},
          {"sample_packing", "packing", as_key("packing")},
          {"eval_sample_packing", "eval_packing", as_key("eval_packing")},
          {"chat_template", "chat_template_path, where the program has that format; else the model's own is used",
           named_template({{"chatml", "chatml"},
                           {"cohere", "command_r"},
                           {"gemma", "gemma"},
                           {"llama3", "llama3"},
                           {"phi_3", "phi3"}})},
          {"chat_template_jinja", "chat_template_path", as_key("chat_template_path")},
          {"special_tokens", "eos_token and pad_token; others are those of the model's folder", axolotl_special_tokens},
          {"eval_batch_size", "per_device_eval_batch_size", as_key("per_device_eval_batch_size")},
          {"batch_size", "rows of an update: gives gradient_accumulation_steps", pending("batch_size")},
          {"optimizer", "optim", as_key("optim")},
          {"optim_args", "", axolotl_optim_args},
          {"learning_rate", "", numbers_in_text("learning_rate")},
          {"cosine_min_lr_ratio", "lr_scheduler_type cosine_with_min_lr", pending("cosine_min_lr_ratio")},
          {"bf16", "", axolotl_bf16},
          {"bfloat16", "true: bf16", when_true("bf16", true)},
          {"float16", "true: fp16", when_true("fp16", true)},
          {"float32", "true: dtype float32", when_true("dtype", "float32")},
          {"gradient_checkpointing", "", axolotl_checkpointing},
          {"activation_offloading", "", axolotl_offloading},
          {"evals_per_epoch", "gives eval_steps", pending("evals_per_epoch")},
          {"saves_per_epoch", "gives save_steps", pending("saves_per_epoch")},
          {"auto_resume_from_checkpoints", "true: resume_from_checkpoint auto",
           when_true("resume_from_checkpoint", "auto")}};
}

std::optional<double> number_of(const Draft& draft, const std::string& key) {
  const Setting* s = draft.find(key);
  if (!s || !s->value.is_number() || s->value <= 0) return {};
  return s->value.get<double>();
}

/// A number of events per epoch as a share of all updates, and the strategy to it.
struct PerEpoch {
  const char *pending, *steps, *strategy;
};
void settle_events(Draft& draft, const PerEpoch& names) {
  const Setting* per_epoch = draft.find(names.pending);
  if (const auto n = number_of(draft, names.pending)) {
    const Setting* steps = draft.find(names.steps);
    if (steps && !steps->value.is_null() && steps->overrides() == per_epoch->overrides())
      draft.problem(per_epoch->place,
                    fmt::format("\"{}\" and \"{}\" are both given", per_epoch->written, steps->written),
                    "keep one of them");
    const double share = 1 / (*n * number_of(draft, "num_train_epochs").value_or(1));
    if (share < 1) draft.offer(names.steps, {per_epoch->written, per_epoch->place, share});
  }
  if (const auto steps = number_of(draft, names.steps))
    draft.offer(names.strategy, {draft.find(names.steps)->written, draft.find(names.steps)->place, "steps"});
}

void settle_batch(Draft& draft) {
  const Setting* total = draft.find("~batch_size");
  if (!total || total->value.is_null()) return;
  const auto rows = number_of(draft, "~batch_size");
  const double micro = number_of(draft, "per_device_train_batch_size").value_or(1);
  if (draft.has("gradient_accumulation_steps"))
    return draft.problem(total->place,
                         fmt::format("\"{}\" and \"gradient_accumulation_steps\" are both given", total->written),
                         "keep one of them");
  const double windows = rows.value_or(0) / micro;
  if (windows < 1 || windows != std::floor(windows))
    return draft.problem(
        total->place,
        fmt::format("\"{}\" is {}: no multiple of micro_batch_size, {}", total->written, show(total->value), micro),
        "give gradient_accumulation_steps");
  draft.offer("gradient_accumulation_steps", {total->written, total->place, static_cast<std::int64_t>(windows)});
}

/// All linear layers beside those that lora_target_modules names.
void settle_targets(Draft& draft) {
  const Setting* linear = draft.find("~lora_target_linear");
  if (!linear || linear->value != true) return;
  const Setting* named = draft.find("lora_target_modules");
  Json targets = named ? named->value : Json::array();
  if (targets.is_string()) targets = Json::array({targets});
  if (!targets.is_array()) return;  // an error of lora_target_modules
  targets.push_back("all-linear");
  const std::string written = named ? fmt::format("{} and {}", named->written, linear->written) : linear->written;
  draft.settings["lora_target_modules"] = {written, linear->place, std::move(targets)};
}

void settle_axolotl(Draft& draft) {
  settle_events(draft, {"~evals_per_epoch", "eval_steps", "eval_strategy"});
  settle_events(draft, {"~saves_per_epoch", "save_steps", "save_strategy"});
  settle_batch(draft);
  settle_targets(draft);
  const Setting* floor = draft.find("~cosine_min_lr_ratio");
  const Setting* schedule = draft.find("lr_scheduler_type");
  if (!number_of(draft, "~cosine_min_lr_ratio") || (schedule && schedule->value != "cosine")) return;
  draft.settings["lr_scheduler_type"] = {floor->written, floor->place, "cosine_with_min_lr"};
  draft.offer("lr_scheduler_kwargs", {floor->written, floor->place, {{"min_lr_rate", floor->value}}});
}

/// Weights are loaded in the type of the products.
void complete_axolotl(ResolvedConfig& c) {
  tell_answers_apart(c);
  TrainingSection& t = c.value.training;
  if (!c.given("per_device_eval_batch_size")) t.per_device_eval_batch_size = t.per_device_train_batch_size;
  const bool evaluates = !c.value.data.eval_dataset_name.empty() || c.value.data.eval_split > 0;
  if (!evaluates) t.eval_strategy = EvalStrategy::no;
  if (c.given("dtype")) return;
  if (t.fp16 || (!t.bf16 && c.value.quant.load_in_8bit)) c.value.model.dtype = "float16";
  if (t.bf16 && !t.fp16) c.value.model.dtype = "bfloat16";
}

}  // namespace

Dialect axolotl_dialect() {
  return {.name = "axolotl",
          .about = "axolotl, in YAML or JSON",
          .sure = {"sample_packing", "val_set_size", "lora_target_linear", "dataset_prepared_path", "evals_per_epoch",
                   "saves_per_epoch", "pad_to_sequence_len", "flash_attention", "lora_model_dir", "train_on_inputs",
                   "eval_sample_packing", "loss_watchdog_threshold", "special_tokens"},
          .usual = {"base_model", "datasets", "micro_batch_size", "sequence_len", "adapter", "num_epochs", "batch_size",
                    "lr_scheduler", "optimizer"},
          .ignored = {},
          .defaults = {{"output_dir", "\"./model-out\""},
                       {"lora_r", "8"},
                       {"lora_alpha", "8"},
                       {"lora_dropout", "0"},
                       {"max_length", "512"},
                       {"num_train_epochs", "1"},
                       {"per_device_train_batch_size", "1"},
                       {"per_device_eval_batch_size", "1"},
                       {"lr_scheduler_type", "\"cosine\""},
                       {"warmup_ratio", "0.03"},
                       {"gradient_checkpointing", "false"},
                       {"save_strategy", "\"epoch\""},
                       {"save_total_limit", "4"},
                       {"shuffle_dataset", "true"},
                       {"packing_scope", "\"dataset\""},
                       {"assistant_only_loss", "true"},
                       {"completion_only_loss", "true"},
                       {"bnb_4bit_use_double_quant", "true"}},
          .rewrites = axolotl_rewrites(),
          .inert = kAxolotlInert,
          .settle = settle_axolotl,
          .complete = complete_axolotl};
}

}  // namespace qtrain
