#include <algorithm>
#include <array>

#include "config/keys.h"

namespace qtrain {
namespace {

constexpr auto kAliases = std::to_array<Alias>({
    // model
    {"model_name", "model_name_or_path"},
    {"model", "model_name_or_path"},
    {"base_model_name", "model_name_or_path"},
    {"base_model_name_or_path", "model_name_or_path"},
    {"adapter_path", "adapter_name_or_path"},
    {"tokenizer_name", "tokenizer_name_or_path"},
    {"torch_dtype", "dtype"},
    {"chat_template", "chat_template_path"},
    // data
    {"train_file", "dataset_name"},
    {"train_dataset", "dataset_name"},
    {"dataset", "dataset_name"},
    {"dataset_path", "dataset_name"},
    {"eval_dataset", "eval_dataset_name"},
    {"eval_file", "eval_dataset_name"},
    {"validation_file", "eval_dataset_name"},
    {"validation_path", "eval_dataset_name"},
    {"text_field", "dataset_text_field"},
    {"mask_history", "last_turn_only_loss"},
    {"response_part", "response_template"},
    {"instruction_part", "instruction_template"},
    {"max_train_samples", "max_samples"},
    {"sequence_len", "max_length"},
    {"cutoff_len", "max_length"},
    // LoRA
    {"use_lora", "use_peft"},
    {"r", "lora_r"},
    {"lora_rank", "lora_r"},
    {"rank", "lora_r"},
    {"alpha", "lora_alpha"},
    {"dropout", "lora_dropout"},
    {"target_modules", "lora_target_modules"},
    {"modules_to_save", "lora_modules_to_save"},
    // quantization
    {"use_4bit", "load_in_4bit"},
    {"use_8bit", "load_in_8bit"},
    {"use_bnb_nested_quant", "bnb_4bit_use_double_quant"},
    {"use_nested_quant", "bnb_4bit_use_double_quant"},
    // steps
    {"batch_size", "per_device_train_batch_size"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"lr", "learning_rate"},
    {"epochs", "num_train_epochs"},
    {"num_epochs", "num_train_epochs"},
    {"lr_scheduler", "lr_scheduler_type"},
    {"use_tf32", "tf32"},
    {"use_gradient_checkpointing", "gradient_checkpointing"},
    {"evaluation_strategy", "eval_strategy"},
    {"resume_checkpoint", "resume_from_checkpoint"},
    {"deepspeed_config", "deepspeed"},
    {"ds_config", "deepspeed"},
    {"accelerate_config_file", "accelerate_config"},
});

}  // namespace

std::span<const Alias> aliases() {
  return kAliases;
}

const Alias* find_alias(std::string_view name) {
  const auto at = std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& a) { return a.name == name; });
  return at == kAliases.end() ? nullptr : &*at;
}

}  // namespace qtrain
