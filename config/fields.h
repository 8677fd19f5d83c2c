#pragma once
#include <limits>
#include <span>
#include <string_view>

#include "config/config.h"

namespace qtrain {

/// The numbers that a key takes; the ends belong to it unless `open`.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
};
inline constexpr Range kAny{};
inline constexpr Range kCount{.low = 1, .high = 1 << 30};
inline constexpr Range kNotNegative{.low = 0};
inline constexpr Range kPositive{.low = 0, .low_open = true};
inline constexpr Range kShare{.low = 0, .high = 1, .high_open = true};

/// What is said about a key beside its name and its member: one line for the reference page, and what it may hold.
struct Spec {
  std::string_view doc;
  Range range = kAny;
  std::span<const std::string_view> choices = {};  ///< of a string; enumerations have theirs in EnumNames
  std::string_view summary = {};                   ///< of many choices, for messages
};

inline constexpr std::string_view kDtypes[] = {"float32", "bfloat16", "float16", "auto"};
inline constexpr std::string_view kQuantDtypes[] = {"float32", "bfloat16", "float16"};
inline constexpr std::string_view kQuantTypes[] = {"nf4", "fp4"};
inline constexpr std::string_view kComputeDtypes[] = {"auto", "float32", "bfloat16"};

/// Each list calls visit(key, member, Spec) once per key, in the order of the reference page. It is the only place that
/// knows which keys there are: parsing, unknown keys, the resolved dump and the reference all run over it.
template <class V, class S>
void model_fields(V& visit, S& s) {
  visit("model_name_or_path", s.model_name_or_path,
        {"Folder of the model: config.json, safetensors and tokenizer files."});
  visit("adapter_name_or_path", s.adapter_name_or_path, {"Folder of a PEFT LoRA adapter to go on from."});
  visit("tokenizer_name_or_path", s.tokenizer_name_or_path, {"Folder of the tokenizer, if it is not the model's."});
  visit("dtype", s.dtype,
        {"Type in which weights are held and saved; auto: as the folder's config.json says.", kAny, kDtypes});
  visit("random_init", s.random_init,
        {"Start from random weights. Without it a folder that has none is an error for adapters and quantized models, "
         "and a warning where all weights are trained."});
  visit(
      "router_aux_loss_coef", s.router_aux_loss_coef,
      {"Coefficient of the loss that keeps the experts of a mixture equally busy; 0: without it. null: as the model's "
       "config.json says.",
       kNotNegative});
  visit("output_router_logits", s.output_router_logits,
        {"Whether that loss is added. null: where its coefficient is not 0, as in TRL; with router_aux_loss_mode "
         "trainer where a coefficient is given or config.json says so."});
  visit("router_aux_loss_mode", s.router_aux_loss_mode,
        {"trl: that loss is averaged over the micro-batches of an update, as in SFTTrainer; trainer: added up, as in "
         "Trainer."});
  visit("chat_template_path", s.chat_template_path,
        {"The chat template, if it is not the model's: a Jinja file or a folder with one, or the name of a format "
         "(chatml, llama3, mistral, gemma, phi3, phi4, zephyr, deepseek, command_r, alpaca, vicuna)."});
  visit("template_date", s.template_date,
        {"The day that a chat template with a clock (strftime_now) writes, as 2026-07-26. By default the day on which "
         "the run begins; a run that is resumed keeps it."});
  visit(
      "eos_token", s.eos_token,
      {"The end token, if it is not the one of tokenizer_config.json: one token of the vocabulary, as <|im_end|> for a "
       "base model that learns to chat. The saved tokenizer and model have it."});
  visit("pad_token", s.pad_token,
        {"The padding token of the saved tokenizer and model, likewise; batches here are never padded."});
}

template <class V, class S>
void data_fields(V& visit, S& s) {
  visit("dataset_name", s.dataset_name,
        {"Training rows: files, globs or folders (JSON, JSONL, CSV, TSV, also .gz and .zst; Parquet; Arrow, as "
         "save_to_disk "
         "writes it)."});
  visit("eval_dataset_name", s.eval_dataset_name, {"Evaluation rows, likewise."});
  visit("eval_split", s.eval_split,
        {"Share of the training rows (from 1 on: number of rows) to hold out where eval_dataset_name is not given.",
         kNotNegative});
  visit("max_samples", s.max_samples,
        {"Take only so many rows, the first, for training and for evaluation each.", kCount});
  visit("dataset_mixture", s.dataset_mixture,
        {"Training rows of several sources, instead of dataset_name: paths, or objects with path or data_files, split, "
         "columns (those to keep), column_mapping, message_property_mappings, role_mapping, fraction (share of the "
         "mixture, as TRL's) and weight (probability of being drawn from)."});
  visit("mix_strategy", s.mix_strategy,
        {"How dataset_mixture is mixed: one source behind the other, or interleaved as datasets.interleave_datasets "
         "does it. null: first_exhausted if there are weights, else concatenate."});
  visit(
      "column_mapping", s.column_mapping,
      {"Columns under other names: {\"prompt\": \"question\", \"messages\": \"dialogue\"}; or texts made of several "
       "columns: {\"prompt\": \"[INST] {title}: {question} [/INST]\"}, of a list of texts the first whose columns all "
       "hold something."});
  visit("message_property_mappings", s.message_property_mappings,
        {"Keys of a message under other names: {\"role\": \"speaker\", \"content\": \"words\"}."});
  visit("role_mapping", s.role_mapping,
        {"Roles under other names: {\"user\": \"customer\", \"assistant\": [\"bot\", \"agent\"]}."});
  visit("dataset_text_field", s.dataset_text_field, {"Field that holds the text of `text` rows."});
  visit("max_length", s.max_length,
        {"Longest row in tokens; rows are packed up to it. null: rows are not cut.", kCount});
  visit("truncation_mode", s.truncation_mode,
        {"Which end of a row that is too long is kept; packing keeps its start."});
  visit("shuffle_dataset", s.shuffle_dataset, {"Shuffle the rows once before packing."});
  visit("packing", s.packing,
        {"Put several documents into a row; attention stays within each. Or name the strategy here."});
  visit("packing_strategy", s.packing_strategy,
        {"bfd: best fit decreasing, cuts what exceeds a row; bfd_split: splits it; wrapped: one text, cut every "
         "max_length."});
  visit("packing_scope", s.packing_scope,
        {"What is packed together: each batch of 1,000 rows as in TRL, or the whole dataset."});
  visit("packing_isolate", s.packing_isolate,
        {"`wrapped` keeps the borders of documents (TRL lets attention cross them)."});
  visit("eval_packing", s.eval_packing, {"Pack evaluation rows. null: as `packing`."});
  visit("completion_only_loss", s.completion_only_loss,
        {"Loss on the completion only. null: on for prompt + completion rows."});
  visit("assistant_only_loss", s.assistant_only_loss, {"Loss on the assistant's turns only."});
  visit("last_turn_only_loss", s.last_turn_only_loss, {"Loss on the assistant's last turn only."});
  visit(
      "skip_empty_answers", s.skip_empty_answers,
      {"Leave out, and count, rows in which an answer is empty: a completion, or an assistant's turn without text and "
       "tool calls."});
  visit("response_template", s.response_template,
        {"Text behind which answers begin, where roles are not known: loss on what follows it only."});
  visit("instruction_template", s.instruction_template,
        {"Text at which the next question begins, and with it the end of an answer."});
  visit("token_cache_dir", s.token_cache_dir,
        {"Folder where prepared rows are kept for other runs. null: qtrain/tokens in XDG_CACHE_HOME or ~/.cache; \"\": "
         "none."});
  visit("token_cache_gb", s.token_cache_gb,
        {"Gigabytes above which prepared rows that were used least recently are removed.", kNotNegative});
}

template <class V, class S>
void lora_fields(V& visit, S& s) {
  visit("use_peft", s.use_peft, {"Train a LoRA adapter instead of all weights."});
  visit("lora_r", s.lora_r, {"Rank of the adapter.", kCount});
  visit("lora_alpha", s.lora_alpha, {"The adapter is scaled by lora_alpha / lora_r.", kPositive});
  visit("lora_dropout", s.lora_dropout, {"Dropout on the adapter's input.", kShare});
  visit("lora_target_modules", s.lora_target_modules,
        {"Layers to adapt: a list of names or ends of names, in which \"all-linear\" stands for all linear layers but "
         "the "
         "head; or, alone, one regular expression for the whole name. An entry of a list that matches no layer is an "
         "error. Empty: q_proj and v_proj."});
  visit("rank_pattern", s.rank_pattern,
        {"Other ranks for some layers: {\"layers.0.mlp.up_proj\": 16}; a key is a regular expression for the end of a "
         "name."});
  visit("alpha_pattern", s.alpha_pattern, {"Other values of lora_alpha for some layers, as in rank_pattern."});
  visit("use_rslora", s.use_rslora, {"Scale by lora_alpha / sqrt(lora_r)."});
  visit("use_dora", s.use_dora,
        {"DoRA: train the lengths of a weight's rows apart from their directions, which the adapter changes."});
  visit(
      "lora_modules_to_save", s.lora_modules_to_save,
      {"Layers that are trained whole beside the adapter and saved with it, by the ends of their names: embed_tokens, "
       "lm_head, norm, ..."});
  visit(
      "ensure_weight_tying", s.ensure_weight_tying,
      {"Train a tied head and embedding in lora_modules_to_save as the one weight that they are; else each is trained "
       "for itself, or alone, as in PEFT."});
  visit("loraplus_lr_ratio", s.loraplus_lr_ratio,
        {"LoRA+: the learning rate of B is so many times learning_rate; that of A stays. null: one rate.", kPositive});
  visit("loraplus_lr_embedding", s.loraplus_lr_embedding,
        {"LoRA+: the learning rate of an adapter on the embedding.", kNotNegative});
}

template <class V, class S>
void quant_fields(V& visit, S& s) {
  visit("load_in_4bit", s.load_in_4bit, {"Hold frozen weights in 4 bits (QLoRA)."});
  visit("load_in_8bit", s.load_in_8bit, {"Hold frozen weights in 8 bits."});
  visit("bnb_4bit_quant_type", s.bnb_4bit_quant_type, {"The 4-bit code.", kAny, kQuantTypes});
  visit("bnb_4bit_use_double_quant", s.bnb_4bit_use_double_quant, {"Quantize the scales of the blocks as well."});
  visit(
      "bnb_4bit_compute_dtype", s.bnb_4bit_compute_dtype,
      {"Type of the products with 4-bit weights, and here of all, where neither bf16 nor fp16 is given. null: as bf16 "
       "and fp16 say. That of a quantized folder's config.json is not used.",
       kAny, kQuantDtypes});
  visit("bnb_4bit_blocksize", s.bnb_4bit_blocksize,
        {"Weights that share a scale: a power of two from 32 to 4096.", {.low = 32, .high = 4096}});
  visit("llm_int8_skip_modules", s.llm_int8_skip_modules,
        {"Linear layers that stay as they are (names or prefixes); the head always does."});
  visit("dequantized_copy", s.dequantized_copy,
        {"Keep quantized weights dense too, which saves making them so for each product; \"auto\": on a GPU, where it "
         "fits into memory."});
}

template <class V, class S>
void step_fields(V& visit, S& s) {
  visit("output_dir", s.output_dir, {"Folder for the model, checkpoints, metrics and the report."});
  visit("per_device_train_batch_size", s.per_device_train_batch_size, {"Rows of a micro-batch of one rank.", kCount});
  visit("per_device_eval_batch_size", s.per_device_eval_batch_size,
        {"Rows of an evaluation batch of one rank.", kCount});
  visit("gradient_accumulation_steps", s.gradient_accumulation_steps, {"Micro-batches of one update.", kCount});
  visit("num_train_epochs", s.num_train_epochs, {"Passes over the data; may be a fraction.", kPositive});
  visit("max_steps", s.max_steps,
        {"Number of updates; above 0 it takes the place of num_train_epochs.", {.low = -1, .high = 1e15}});
  visit("learning_rate", s.learning_rate, {"Peak learning rate.", kNotNegative});
  visit("lr_scheduler_type", s.lr_scheduler_type, {"Schedule of the learning rate."});
  visit("lr_scheduler_kwargs", s.lr_scheduler_kwargs, {"Arguments of the schedule, such as {\"num_cycles\": 2}."});
  visit("warmup_steps", s.warmup_steps, {"Updates of warm-up; below 1 a share of all updates.", kNotNegative});
  visit("warmup_ratio", s.warmup_ratio,
        {"Share of all updates to warm up in, where warmup_steps is 0.", {.low = 0, .high = 1}});
  visit(
      "optim", s.optim,
      {"Optimizer. Names that differ only in how they are computed mean the same here; the state of paged ones goes to "
       "the host's memory where a GPU has no room for it.",
       kAny, optimizer_names(), optimizer_summary()});
  visit("optim_args", s.optim_args, {"Arguments of the optimizer, such as \"momentum=0.9,nesterov=true\" of sgd."});
  visit("weight_decay", s.weight_decay,
        {"Weight decay, decoupled but for sgd; not for biases and norms.", kNotNegative});
  visit("adam_beta1", s.adam_beta1, {"Decay of the first moment.", kShare});
  visit("adam_beta2", s.adam_beta2, {"Decay of the second moment.", kShare});
  visit("adam_epsilon", s.adam_epsilon, {"Added to the denominator of the update.", kNotNegative});
  visit("max_grad_norm", s.max_grad_norm, {"Clip the gradient to this global norm; 0: off.", kNotNegative});
  visit("bf16", s.bf16,
        {"Compute in bfloat16 where the device has it; weights stay in `dtype`. Default: unless fp16."});
  visit("fp16", s.fp16, {"Compute in float16 with loss scaling, on a GPU; a CPU computes in float32."});
  visit("tf32", s.tf32, {"Let float32 products of a GPU run in TF32; without effect on a CPU."});
  visit("operand_copies", s.operand_copies,
        {"Keep float32 weights also in the 16-bit type of the products, converted once for each update instead of for "
         "each product; \"auto\": on a GPU, where it fits into memory."});
  visit("gradient_checkpointing", s.gradient_checkpointing,
        {"Compute intermediates again in the backward pass to save memory: false, \"selective\" (norms and "
         "activations), true (whole blocks), \"blocks:N\" (only every N-th block keeps its input); \"auto\": the "
         "fastest of them that fits into memory."});
  visit(
      "activation_offloading", s.activation_offloading,
      {"Keep the inputs of blocks that gradient_checkpointing keeps in the host's memory; copies run beside the work. "
       "Without effect on a CPU."});
  visit("optimizer_offload", s.optimizer_offload,
        {"Keep the optimizer's state in the host's memory; copies run beside the work. Without effect on a CPU."});
  visit("seed", s.seed, {"Seed of initial weights, dropout and data order.", {.low = 0, .high = 0x1p53}});
  visit("data_seed", s.data_seed, {"Seed of the data order. null: `seed`.", {.low = 0, .high = 0x1p53}});
  visit("train_sampling_strategy", s.train_sampling_strategy, {"Order of the rows in an epoch."});
  visit("dataloader_drop_last", s.dataloader_drop_last, {"Leave out a last batch that is not full."});
  visit("dataloader_num_workers", s.dataloader_num_workers,
        {"Threads that prepare batches while steps are computed; there is always one.", {.low = 0, .high = 256}});
  visit("dataloader_prefetch_factor", s.dataloader_prefetch_factor,
        {"Batches that each of them prepares ahead. null: 2.", {.low = 1, .high = 1024}});
}

template <class V, class S>
void event_fields(V& visit, S& s) {
  visit("logging_strategy", s.logging_strategy, {"When to log."});
  visit("logging_steps", s.logging_steps, {"Log every so many updates; below 1 a share of all updates.", kNotNegative});
  visit("logging_first_step", s.logging_first_step, {"Log the first update too."});
  visit("report_to", s.report_to,
        {"tensorboard, none or all, which mean the same: metrics go to output_dir, into metrics.jsonl, "
         "trainer_state.json "
         "and runs/ (TensorBoard). Others are refused, since nothing is sent over the network."});
  visit("disable_tqdm", s.disable_tqdm, {"No progress line."});
  visit("eval_strategy", s.eval_strategy, {"When to evaluate."});
  visit("eval_steps", s.eval_steps,
        {"Evaluate every so many updates; below 1 a share. null: logging_steps.", kPositive});
  visit("eval_delay", s.eval_delay,
        {"Updates (or epochs, by eval_strategy) before the first evaluation.", kNotNegative});
  visit("eval_on_start", s.eval_on_start, {"Evaluate before the first update."});
  visit("save_strategy", s.save_strategy, {"When to save a checkpoint; best: when the metric improves."});
  visit("save_steps", s.save_steps, {"Save every so many updates; below 1 a share of all updates.", kPositive});
  visit("save_total_limit", s.save_total_limit, {"Checkpoints to keep; the best and the newest always stay.", kCount});
  visit("save_only_model", s.save_only_model,
        {"Checkpoints without optimizer state: a run cannot be resumed from them."});
  visit("load_best_model_at_end", s.load_best_model_at_end, {"End with the weights of the best evaluation."});
  visit("metric_for_best_model", s.metric_for_best_model, {"What `best` means: eval_loss."});
  visit("greater_is_better", s.greater_is_better, {"Whether a greater metric is better. null: not for a loss."});
  visit("resume_from_checkpoint", s.resume_from_checkpoint,
        {"auto: from the newest valid checkpoint in output_dir, if any; never; or a checkpoint folder."});
}

template <class V, class S>
void run_fields(V& visit, S& s) {
  visit("device", s.device, {"Where to run."});
  visit("nproc", s.nproc, {"Processes (ranks) to train with.", kCount});
  visit("threads", s.threads,
        {"Worker threads; 0: one per processor. Results do not depend on it.", {.low = 0, .high = 4096}});
  visit("compute_dtype", s.compute_dtype,
        {"Type of matrix products; auto: bfloat16 if bf16 is on and the processor multiplies it fast, else float32.",
         kAny, kComputeDtypes});
  visit("max_nonfinite_steps", s.max_nonfinite_steps,
        {"Stop after so many updates in a row with a NaN or Inf.", kCount});
  visit(
      "use_cuda_graphs", s.use_cuda_graphs,
      {"On a GPU, record the work of each size of micro-batch and replay it, which saves the time of single launches; "
       "results do not change. null: yes."});
}

/// All keys, with section(title) before each group.
template <class V, class C>
void config_fields(V& visit, C& c) {
  visit.section("Model");
  model_fields(visit, c.model);
  visit.section("Data");
  data_fields(visit, c.data);
  visit.section("LoRA");
  lora_fields(visit, c.lora);
  visit.section("Quantization");
  quant_fields(visit, c.quant);
  visit.section("Training");
  step_fields(visit, c.training);
  visit.section("Logging, evaluation, checkpoints");
  event_fields(visit, c.training);
  visit.section("Machine");
  run_fields(visit, c.run);
}

}  // namespace qtrain
