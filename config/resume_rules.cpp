#include "config/resume_rules.h"

#include <algorithm>

namespace qtrain {
namespace {

constexpr std::string_view kRefusedKeys[] = {
    // the model, what of it is trained, and how the frozen part is held
    "dtype", "random_init", "use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "rank_pattern",
    "alpha_pattern", "use_rslora", "use_dora", "lora_modules_to_save", "ensure_weight_tying", "load_in_4bit",
    "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_blocksize", "llm_int8_skip_modules",
    // which rows the next step takes, and the random numbers
    "template_date", "per_device_train_batch_size", "gradient_accumulation_steps", "seed", "data_seed",
    "train_sampling_strategy", "dataloader_drop_last", "nproc",
    // what the optimizer's state was made with
    "optim", "optim_args", "adam_beta1", "adam_beta2", "loraplus_lr_ratio", "loraplus_lr_embedding"};

constexpr std::string_view kRowKeys[] = {
    // texts and tokens
    "tokenizer_name_or_path", "dataset_name", "eval_split", "max_samples", "dataset_mixture", "mix_strategy",
    "column_mapping", "message_property_mappings", "role_mapping", "dataset_text_field",
    // lengths, packing, masks
    "max_length", "truncation_mode", "shuffle_dataset", "packing", "packing_strategy", "packing_scope",
    "packing_isolate", "completion_only_loss", "assistant_only_loss", "last_turn_only_loss", "skip_empty_answers",
    "response_template", "instruction_template"};

constexpr std::string_view kSavedKeys[] = {"chat_template_path", "eos_token"};

constexpr std::string_view kUpdateKeys[] = {"max_steps",           "num_train_epochs",     "learning_rate",
                                            "lr_scheduler_type",   "lr_scheduler_kwargs",  "warmup_steps",
                                            "warmup_ratio",        "weight_decay",         "adam_epsilon",
                                            "max_grad_norm",       "router_aux_loss_coef", "output_router_logits",
                                            "router_aux_loss_mode"};

constexpr std::string_view kToldKeys[] = {
    // when a run gives up
    "max_nonfinite_steps",
    // how precisely it is computed
    "bf16", "fp16", "tf32", "bnb_4bit_compute_dtype", "compute_dtype",
    // what is logged, evaluated and saved
    "logging_strategy", "logging_steps", "logging_first_step", "eval_dataset_name", "eval_packing",
    "per_device_eval_batch_size", "eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "save_strategy",
    "save_steps", "save_total_limit", "save_only_model", "load_best_model_at_end", "metric_for_best_model",
    "greater_is_better", "pad_token"};

constexpr std::string_view kSilentKeys[] = {
    // the contents of these folders are compared, not their names
    "model_name_or_path", "adapter_name_or_path", "output_dir", "resume_from_checkpoint",
    // how it is computed: the same bits
    "token_cache_dir", "token_cache_gb", "dequantized_copy", "operand_copies", "gradient_checkpointing",
    "activation_offloading", "optimizer_offload", "dataloader_num_workers", "dataloader_prefetch_factor", "threads",
    "use_cuda_graphs",
    // where it runs: the device itself is compared
    "device",
    // what is shown
    "report_to", "disable_tqdm"};

constexpr ResumeRule kResumeRules[] = {{OnResume::refused, kRefusedKeys}, {OnResume::rows, kRowKeys},
                                       {OnResume::saved, kSavedKeys},     {OnResume::update, kUpdateKeys},
                                       {OnResume::told, kToldKeys},       {OnResume::silent, kSilentKeys}};

}  // namespace

std::span<const ResumeRule> resume_rules() {
  return kResumeRules;
}

OnResume on_resume(std::string_view key) {
  for (const ResumeRule& rule : kResumeRules)
    if (std::ranges::find(rule.keys, key) != rule.keys.end()) return rule.kind;
  return OnResume::refused;
}

}  // namespace qtrain
