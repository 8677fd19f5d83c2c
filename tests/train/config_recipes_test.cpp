// Configs as users of other tools have them; what they come to is written from the documentation of those tools.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/core/temp_folder.h"
#include "train/config/config.h"

namespace qtrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ResolvedConfig recipe(std::string_view text, const Overrides& overrides = {}) {
  return parse_config(text, "r.yaml", overrides);
}

std::string refusal_of_recipe(std::string_view text) {
  try {
    recipe(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "no error";
}

constexpr std::string_view kFactoryLora = R"(### model
model_name_or_path: models/llama
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: all

### dataset
dataset: identity.json, rows/alpaca_en_demo.json
template: llama3
cutoff_len: 2048
overwrite_cache: true
preprocessing_num_workers: 16
dataloader_num_workers: 4

### output
output_dir: saves/llama/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none  # choices: [none, wandb, tensorboard, swanlab, mlflow]

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null

### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
)";

TEST(LlamaFactory, ALoraRecipe) {
  const ResolvedConfig r = recipe(kFactoryLora);
  const Config& c = r.value;
  EXPECT_EQ(r.dialect, "llamafactory");
  EXPECT_EQ(c.model.model_name_or_path, "models/llama");
  EXPECT_EQ(c.model.dtype, "bfloat16");  // the type of the products
  EXPECT_THAT(c.data.dataset_name, ElementsAre("identity.json", "rows/alpaca_en_demo.json"));
  EXPECT_EQ(c.data.max_length, 2048);
  EXPECT_EQ(c.data.eval_split, 0.1);
  EXPECT_TRUE(c.data.assistant_only_loss);  // train_on_prompt is false
  EXPECT_EQ(c.data.completion_only_loss, true);
  EXPECT_FALSE(c.data.packing);
  EXPECT_TRUE(c.lora.use_peft);
  EXPECT_EQ(c.lora.lora_r, 16);
  EXPECT_EQ(c.lora.lora_alpha, 32);  // twice the rank
  EXPECT_THAT(c.lora.lora_target_modules, ElementsAre("all-linear"));
  EXPECT_EQ(c.training.output_dir, "saves/llama/lora/sft");
  EXPECT_EQ(c.training.per_device_train_batch_size, 1);
  EXPECT_EQ(c.training.gradient_accumulation_steps, 8);
  EXPECT_EQ(c.training.learning_rate, 1e-4);
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::cosine);
  EXPECT_EQ(c.training.warmup_ratio, 0.1);
  EXPECT_TRUE(c.training.bf16);
  EXPECT_EQ(c.training.gradient_checkpointing.policy, "block");  // unless disable_gradient_checkpointing
  EXPECT_EQ(c.training.eval_strategy, EvalStrategy::steps);
  EXPECT_EQ(c.training.resume_from_checkpoint, "never");  // overwrite_output_dir
  EXPECT_EQ(r.origin.at("lora_alpha"), "r.yaml:9 (2 x lora_rank)");
  EXPECT_EQ(r.origin.at("max_grad_norm"), "default (llamafactory)");
  EXPECT_THAT(r.notes[0], HasSubstr("dialect llamafactory"));
  EXPECT_EQ(c.model.chat_template_path, "llama3");
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"template\": \"llama3\": the format of that name")));
}

TEST(LlamaFactory, DefaultsAreTheToolsOwn) {
  const Config c = recipe("stage: sft\nfinetuning_type: full\n").value;
  EXPECT_FALSE(c.lora.use_peft);
  EXPECT_EQ(c.training.learning_rate, 5e-5);
  EXPECT_EQ(c.training.per_device_train_batch_size, 8);
  EXPECT_EQ(c.training.num_train_epochs, 3);
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::linear);
  EXPECT_EQ(c.training.logging_steps, 500);
  EXPECT_FALSE(c.training.bf16);
  EXPECT_EQ(c.data.max_length, 2048);
  EXPECT_EQ(c.model.dtype, "auto");
  EXPECT_EQ(recipe("finetuning_type: lora").value.lora.lora_alpha, 16);
}

TEST(LlamaFactory, Qlora) {
  const Config c = recipe(
                       "model_name_or_path: m\nfinetuning_type: lora\nquantization_bit: 4\nquantization_method: bnb\n"
                       "double_quantization: false\nlora_target: q_proj,v_proj\nlora_alpha: 7\ntrain_on_prompt: true\n"
                       "neat_packing: true\ndisable_gradient_checkpointing: true\nflash_attn: fa2\nfp16: true\n"
                       "disable_shuffling: true\noptim: adamw_8bit\nadditional_target: embed_tokens,lm_head\n"
                       "loraplus_lr_ratio: 16.0\n")
                       .value;
  EXPECT_TRUE(c.quant.load_in_4bit);
  EXPECT_FALSE(c.quant.bnb_4bit_use_double_quant);
  EXPECT_THAT(c.lora.lora_target_modules, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(c.lora.lora_alpha, 7);
  EXPECT_FALSE(c.data.assistant_only_loss);
  EXPECT_EQ(c.data.completion_only_loss, false);
  EXPECT_TRUE(c.data.packing);
  EXPECT_EQ(c.training.gradient_checkpointing.policy, "none");
  EXPECT_EQ(c.training.train_sampling_strategy, Sampling::sequential);
  EXPECT_EQ(c.model.dtype, "float16");
  EXPECT_THAT(c.lora.lora_modules_to_save, ElementsAre("embed_tokens", "lm_head"));
  EXPECT_EQ(c.lora.loraplus_lr_ratio, 16);
}

TEST(LlamaFactory, OtherTemplatesAndTheLastTurn) {
  const ResolvedConfig r = recipe("finetuning_type: lora\ntemplate: qwen3\nmask_history: true\nmax_samples: 100\n");
  EXPECT_EQ(r.value.model.chat_template_path, std::nullopt);
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"template\": \"qwen3\": the chat template of the model's folder is used")));
  EXPECT_TRUE(r.value.data.last_turn_only_loss);
  EXPECT_EQ(r.value.data.max_samples, 100);
  EXPECT_EQ(recipe("finetuning_type: lora\nval_size: 100").value.data.eval_split, 100);
}

TEST(LlamaFactory, WhatIsNotAvailableIsNamed) {
  EXPECT_THAT(refusal_of_recipe("stage: dpo\nfinetuning_type: lora"),
              HasSubstr("\"dpo\" is not available; available: sft"));
  EXPECT_THAT(refusal_of_recipe("finetuning_type: freeze"), HasSubstr("available: lora, full"));
  EXPECT_THAT(refusal_of_recipe("finetuning_type: lora\nquantization_bit: 3"), HasSubstr("available: 4, 8"));
  EXPECT_THAT(refusal_of_recipe("finetuning_type: full\nuse_galore: true\ngalore_rank: 16"), HasSubstr("GaLore"));
  EXPECT_THAT(refusal_of_recipe("finetuning_type: lora\nrope_scaling: dynamic"), HasSubstr("config.json"));
  EXPECT_THAT(refusal_of_recipe("finetuning_type: lora\nval_size: 100.5"), HasSubstr("neither a share nor a number"));
  EXPECT_THAT(refusal_of_recipe("finetuning_type: lora\ncutof_len: 9"), HasSubstr("did you mean \"cutoff_len\"?"));
}

TEST(LlamaFactory, DataSetsOfTheRegistry) {
  const qtrain::testing::TempFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_file(folder / "data" / "dataset_info.json",
             R"({"one": {"file_name": "one.json"}, "hub": {"hf_hub_url": "a/b"},
                 "rank": {"file_name": "rank.json", "ranking": true},
                 "chat": {"file_name": "chat.json", "formatting": "sharegpt", "columns": {"messages": "conversations"}},
                 "odd": {"file_name": "odd.json", "columns": {"prompt": "question", "messages": "turns"},
                         "tags": {"role_tag": "who", "content_tag": "value", "assistant_tag": "bot"}}})");
  const auto write = [&](const char* names) {
    write_file(folder / "c.yaml", fmt::format("finetuning_type: lora\ndataset: {}\n", names));
  };
  write("one,chat");
  EXPECT_THAT(load_config(folder / "c.yaml").value.data.dataset_name,
              ElementsAre((folder / "data" / "one.json").string(), (folder / "data" / "chat.json").string()));
  write("hub,odd,rank");
  const auto problems = config_problems(folder / "c.yaml");
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems[0].cause, HasSubstr("\"hub\": no file_name"));
  EXPECT_THAT(problems[1].cause, HasSubstr("\"rank\": ranking true"));
  write("one,odd");
  EXPECT_EQ(Json(load_config(folder / "c.yaml").value.data.dataset_mixture),
            Json({(folder / "data" / "one.json").string(),
                  {{"path", (folder / "data" / "odd.json").string()},
                   {"column_mapping", {{"instruction", "question"}, {"messages", "turns"}}},
                   {"message_property_mappings", {{"role", "who"}}},
                   {"role_mapping", {{"assistant", "bot"}}}}}));
}

// Rows of a base model have no roles: then the mask of completions is all there is.
TEST(LlamaFactory, AFolderWithoutAChatTemplate) {
  const qtrain::testing::TempFolder folder;
  const auto config = [&](const char* more) {
    return recipe(fmt::format("finetuning_type: lora\nmodel_name_or_path: {}\n{}", folder.path().string(), more));
  };
  const ResolvedConfig r = config("");
  EXPECT_FALSE(r.value.data.assistant_only_loss);
  EXPECT_EQ(r.value.data.completion_only_loss, true);
  EXPECT_THAT(r.notes, Contains(HasSubstr("has no chat template")));
  EXPECT_TRUE(config("assistant_only_loss: true\n").value.data.assistant_only_loss);
  write_file(folder / "chat_template.jinja", "{{ messages }}");
  EXPECT_TRUE(config("").value.data.assistant_only_loss);
}

constexpr std::string_view kAxolotlQlora = R"(base_model: NousResearch/Llama-3.2-1B
# Automatically upload checkpoint and final model to HF
# hub_model_id: username/custom_model_name

load_in_8bit: false
load_in_4bit: true

datasets:
  - path: rows/alpaca.jsonl
    type: alpaca
  - path: json
    data_files: [a.jsonl, b.jsonl]
    type: chat_template
    field_messages: conversations
    message_property_mappings:
      role: from
      content: value
dataset_prepared_path: last_run_prepared
val_set_size: 0.1
output_dir: ./outputs/qlora-out

adapter: qlora
lora_model_dir:

sequence_len: 2048
sample_packing: true
eval_sample_packing: false
pad_to_sequence_len: true

lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules:
  - gate_proj
  - q_proj
lora_target_linear: true

wandb_project:
wandb_entity:
wandb_watch:
wandb_name:
wandb_log_model:

gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 2
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002

train_on_inputs: false
group_by_length: false
bf16: auto
fp16:
tf32: false

gradient_checkpointing: true
early_stopping_patience:
resume_from_checkpoint:
local_rank:
logging_steps: 1
xformers_attention:
flash_attention: true

loss_watchdog_threshold: 5.0
loss_watchdog_patience: 3

warmup_steps: 10
evals_per_epoch: 4
saves_per_epoch: 1
debug:
deepspeed:
weight_decay: 0.0
fsdp:
fsdp_config:
special_tokens:
  pad_token: "<|end_of_text|>"
)";

TEST(Axolotl, AQloraRecipe) {
  const ResolvedConfig r = recipe(kAxolotlQlora);
  const Config& c = r.value;
  EXPECT_EQ(r.dialect, "axolotl");
  EXPECT_EQ(c.model.model_name_or_path, "NousResearch/Llama-3.2-1B");
  EXPECT_EQ(c.model.dtype, "bfloat16");
  EXPECT_TRUE(c.quant.load_in_4bit && !c.quant.load_in_8bit);
  EXPECT_TRUE(c.quant.bnb_4bit_use_double_quant);
  EXPECT_THAT(c.data.dataset_name, ElementsAre("rows/alpaca.jsonl", "a.jsonl", "b.jsonl"));
  EXPECT_EQ(c.data.eval_split, 0.1);
  EXPECT_EQ(c.data.max_length, 2048);
  EXPECT_TRUE(c.data.packing);
  EXPECT_EQ(c.data.evaluation_packing(), Packing::none);
  EXPECT_TRUE(c.data.assistant_only_loss);
  EXPECT_TRUE(c.data.shuffle_dataset);  // shuffle_merged_datasets
  EXPECT_EQ(c.data.token_cache_dir, "last_run_prepared");
  EXPECT_TRUE(c.lora.use_peft);
  EXPECT_EQ(c.lora.lora_r, 32);
  EXPECT_THAT(c.lora.lora_target_modules, ElementsAre("all-linear"));
  EXPECT_EQ(c.training.per_device_train_batch_size, 2);
  EXPECT_EQ(c.training.per_device_eval_batch_size, 2);  // as micro_batch_size
  EXPECT_EQ(c.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(c.training.num_train_epochs, 2);
  EXPECT_EQ(c.training.optim, "adamw_bnb_8bit");
  EXPECT_EQ(c.training.learning_rate, 2e-4);
  EXPECT_EQ(warmup_steps(c.training, 1000), 10);
  EXPECT_EQ(c.training.eval_strategy, EvalStrategy::steps);
  EXPECT_EQ(c.training.eval_steps, 1.0 / 8);  // of all updates: 4 in each of 2 epochs
  EXPECT_EQ(c.training.save_strategy, SaveStrategy::steps);
  EXPECT_EQ(c.training.save_steps, 1.0 / 2);
  EXPECT_EQ(c.training.save_total_limit, 4);
  EXPECT_TRUE(c.training.bf16);
  EXPECT_THAT(r.notes, Contains(HasSubstr("chat_template_path=alpaca has ### Instruction")));
  EXPECT_EQ(r.origin.at("eval_steps"), "r.yaml:69 (evals_per_epoch)");
  EXPECT_EQ(r.origin.at("optim"), "r.yaml:47 (optimizer)");
  EXPECT_EQ(r.origin.at("max_grad_norm"), "default (axolotl)");
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"special_tokens\": the special tokens are those of the model's folder")));
}

TEST(Axolotl, DefaultsAreTheToolsOwn) {
  const Config c = recipe("base_model: m\ndatasets:\n  - path: d\n    type: completion\nmicro_batch_size: 1\n").value;
  EXPECT_FALSE(c.lora.use_peft);
  EXPECT_EQ(c.data.max_length, 512);
  EXPECT_EQ(c.training.num_train_epochs, 1);
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::cosine);
  EXPECT_EQ(warmup_steps(c.training, 1000), 30);
  EXPECT_EQ(c.training.save_strategy, SaveStrategy::epoch);
  EXPECT_EQ(c.training.gradient_checkpointing.policy, "none");
  EXPECT_FALSE(c.data.assistant_only_loss);  // plain text has no answers
  EXPECT_EQ(c.training.output_dir, "./model-out");
}

TEST(Axolotl, KeysThatStandForOthers) {
  const Config c =
      recipe(
          "base_model: m\nsample_packing: false\nbatch_size: 32\nmicro_batch_size: 4\nlearning_rate: '1e-5'\n"
          "bf16: false\nfp16: true\ncosine_min_lr_ratio: 0.1\ngradient_checkpointing: offload\n"
          "optim_args:\n  momentum: 0.9\noptimizer: sgd\ntokenizer_config: t\n"
          "chat_template: phi_3\nresponse_template: '<|assistant|>'\n")
          .value;
  EXPECT_EQ(c.training.gradient_accumulation_steps, 8);
  EXPECT_EQ(c.training.learning_rate, 1e-5);
  EXPECT_TRUE(c.training.fp16);
  EXPECT_EQ(c.model.dtype, "float16");
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::cosine_with_min_lr);
  EXPECT_EQ(c.training.lr_scheduler_kwargs, (Json{{"min_lr_rate", 0.1}}));
  EXPECT_TRUE(c.training.activation_offloading);
  EXPECT_EQ(c.training.optim_args, "momentum=0.9");
  EXPECT_EQ(c.model.tokenizer_name_or_path, "t");
  EXPECT_EQ(c.model.chat_template_path, "phi3");
  EXPECT_FALSE(c.data.assistant_only_loss);  // response_template says where answers are
}

TEST(Axolotl, TheCommandLineWinsOverBothWaysToSayIt) {
  const std::string_view text = "base_model: m\nval_set_size: 0.1\nevals_per_epoch: 4\n";
  EXPECT_EQ(recipe(text, {{"eval_steps", "7"}}).value.training.eval_steps, 7);
  EXPECT_EQ(recipe(text, {{"evals_per_epoch", "2"}}).value.training.eval_steps, 0.5);
  EXPECT_THAT(refusal_of_recipe("base_model: m\nval_set_size: 0.1\nevals_per_epoch: 4\neval_steps: 9\n"),
              HasSubstr("\"evals_per_epoch\" and \"eval_steps\" are both given"));
}

TEST(Axolotl, SourcesMayHaveNamesOfTheirOwn) {
  const Config c = recipe(R"(
base_model: m
micro_batch_size: 1
val_set_size: 0
datasets:
  - path: d
    type: chat_template
    field_messages: turns
    message_property_mappings: {role: who, content: words}
    roles: {assistant: [bot]}
  - path: e
)")
                       .value;
  EXPECT_EQ(Json(c.data.dataset_mixture), Json::parse(R"([
      {"data_files": ["d"], "column_mapping": {"messages": "turns"},
       "message_property_mappings": {"role": "who", "content": "words"}, "role_mapping": {"assistant": ["bot"]}},
      {"data_files": ["e"]}])"));
  EXPECT_TRUE(c.data.dataset_name.empty());
}

TEST(Axolotl, WhatIsNotAvailableIsNamed) {
  const auto refused = [](const char* line) {
    return refusal_of_recipe(fmt::format("base_model: m\nval_set_size: 0\n{}\n", line));
  };
  EXPECT_THAT(refused("rl: dpo"), HasSubstr("only supervised fine-tuning"));
  EXPECT_THAT(refused("adapter: llama-adapter"), HasSubstr("available: lora, qlora"));
  EXPECT_THAT(refused("datasets: [{path: d, type: oasst}]"), HasSubstr("type \"oasst\" is not available"));
  EXPECT_THAT(refused("test_datasets: [{path: d, type: chat_template, field_messages: turns}]"),
              HasSubstr("field_messages"));
  EXPECT_THAT(refused("datasets: [{path: d, typ: alpaca}]"), HasSubstr("unknown member \"typ\""));
  EXPECT_THAT(refused("peft_use_dora: true"), HasSubstr("\"peft_use_dora\": true cannot be honoured"));
  EXPECT_THAT(refused("tokens: ['<x>']"), HasSubstr("the vocabulary stays"));
  EXPECT_THAT(refused("adapter: qlora\nload_in_4bit: false"), HasSubstr("already set load_in_4bit"));
  EXPECT_THAT(refused("micro_batch_size: 4\nbatch_size: 6"), HasSubstr("no multiple of micro_batch_size"));
}

TEST(Dialects, AreToldApart) {
  const auto dialect = [](const char* text) { return recipe(text).dialect; };
  EXPECT_EQ(dialect("model_name_or_path: m\ncutoff_len: 9"), "hf");
  EXPECT_EQ(dialect("base_model: m\ndatasets: [{path: d}]"), "axolotl");
  EXPECT_EQ(dialect("base_model: m\nlr_scheduler: cosine\nsequence_len: 9"), "expert");  // as before there was another
  EXPECT_EQ(dialect("base_model: m\nlr_scheduler: cosine\nsample_packing: true"), "axolotl");
  EXPECT_EQ(dialect("model_name_or_path: m\nfinetuning_type: lora"), "llamafactory");
  EXPECT_THAT(refusal_of_recipe("finetuning_type: lora\nsample_packing: true"), HasSubstr("their defaults differ"));
  EXPECT_EQ(dialect("dialect: axolotl\nnum_epochs: 2"), "axolotl");
  EXPECT_EQ(dialect("base_model: m\nlr_scheduler: cosine\ndatasets: [{path: d}]\nmicro_batch_size: 1"), "axolotl");
}

}  // namespace
}  // namespace qtrain
