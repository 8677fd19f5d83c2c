// Configs as users of axolotl have them; what they come to is written from its documentation.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/file.h"
#include "data/shapes.h"
#include "tests/config/recipes.h"
#include "tests/core/temp_folder.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

using test::recipe;
using test::refusal_of_recipe;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(Axolotl, AllLinearLayersComeBesideThoseThatAreNamed) {
  const auto targets = [](const char* named, const Overrides& overrides = {}) {
    return recipe(fmt::format("base_model: m\nadapter: lora\nlora_target_linear: true\n{}", named), overrides)
        .value.lora.lora_target_modules;
  };
  EXPECT_THAT(targets(""), ElementsAre("all-linear"));
  EXPECT_THAT(targets("lora_target_modules: [embed_tokens, lm_head]\n"),
              ElementsAre("embed_tokens", "lm_head", "all-linear"));
  EXPECT_THAT(targets("lora_target_modules: lm_head\n"), ElementsAre("lm_head", "all-linear"));
  EXPECT_THAT(targets("lora_target_modules: [embed_tokens]\n", {{"lora_target_linear", "false"}}),
              ElementsAre("embed_tokens"));
  EXPECT_THAT(refusal_of_recipe("lora_target_linear: true\nlora_target_modules: 5\n"),
              HasSubstr("lora_target_modules"));
}

TEST(Axolotl, ATrackerIsAWarning) {
  for (const char* on : {"wandb_project: p", "use_wandb: true", "mlflow_tracking_uri: u", "use_mlflow: true",
                         "comet_project_name: c", "use_comet: true"}) {
    const ResolvedConfig r = recipe(fmt::format("val_set_size: 0\n{}\n", on));
    EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("nothing is sent to a tracker; losses and metrics go to output_dir")))
        << on;
    EXPECT_EQ(r.inert.size(), 1u) << on;
  }
  for (const char* off : {"wandb_project: ''", "use_wandb: false", "wandb_project:", "mlflow_tracking_uri: ''",
                          "hf_mlflow_log_artifacts:", "use_comet: false"}) {
    const ResolvedConfig r = recipe(fmt::format("val_set_size: 0\n{}\n", off));
    EXPECT_TRUE(r.warnings.empty() && r.inert.empty()) << off;
  }
}

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
  EXPECT_THAT(c.lora.lora_target_modules, ElementsAre("gate_proj", "q_proj", "all-linear"));
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
  EXPECT_EQ(c.model.pad_token, "<|end_of_text|>");
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

TEST(Axolotl, ATypeMayNameTheFieldsOfInstructions) {
  const auto with = [](const char* type) {
    return fmt::format("base_model: m\nmicro_batch_size: 1\nval_set_size: 0\ndatasets: [{{path: d, type: {}}}]\n",
                       type);
  };
  const Config c = recipe(with("{field_instruction: ask, field_input: '', field_output: answer, format: }")).value;
  EXPECT_EQ(Json(c.data.dataset_mixture),
            Json::parse(R"([{"data_files": ["d"], "column_mapping": {"instruction": "ask", "output": "answer"}}])"));
  EXPECT_THAT(recipe(with("{field_instruction: instruction}")).value.data.dataset_name, ElementsAre("d"));
  EXPECT_THAT(refusal_of_recipe(with("{system_prompt: Be brief.}")), HasSubstr("type.system_prompt"));
}

/// The text that a row becomes: prompt and completion with a bar between them.
std::string text_of(const Config& config, std::string_view row) {
  const RawRows rows = data_rows(config, Split::train);
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    const Sample sample = read_sample(rows.parse(i), {});
    EXPECT_EQ(sample.form, RowForm::text_pair);
    if (rows.parse(i)["id"] == row) return sample.prompt + "|" + sample.text;
  }
  return "no such row";
}

// The example of its page on instruction tuning, whose format has no system prompt; and all that a type may say.
TEST(Axolotl, AFormatMakesPromptsOfSeveralColumns) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "d.jsonl", R"({"id": "both", "question": "q {x}", "context": "c", "answer": "a", "sys": "s"}
{"id": "no input", "question": "q", "context": "", "answer": "a", "sys": "s"}
{"id": "no system", "question": "q", "context": "c", "answer": "a"}
{"id": "neither", "question": "q", "answer": "a", "sys": null}
)");
  const auto config = [&](const std::string& type) {
    return recipe(fmt::format("base_model: m\nmicro_batch_size: 1\nval_set_size: 0\ndatasets:\n"
                              "  - path: {}\n    type:\n      field_instruction: question\n      field_input: context\n"
                              "      field_output: answer\n{}",
                              (folder / "d.jsonl").string(), type))
        .value;
  };
  const Config plain = config("      format: \"[INST] {instruction} [/INST]\"\n");
  EXPECT_EQ(text_of(plain, "both"), "[INST] q {x} [/INST]|a");
  EXPECT_FALSE(plain.data.assistant_only_loss) << "a text has no roles";
  EXPECT_EQ(plain.data.completion_only_loss, true);
  const Config full = config(
      "      format: |-\n        User: {instruction} {input}\n        Assistant:\n"
      "      no_input_format: \"User: {instruction}\\nAssistant:\"\n"
      "      field_system: sys\n      system_format: \"{{system}}: {system}\\n\"\n");
  EXPECT_EQ(text_of(full, "both"), "{system}: s\nUser: q {x} c\nAssistant:|a");
  EXPECT_EQ(text_of(full, "no input"), "{system}: s\nUser: q\nAssistant:|a");
  EXPECT_EQ(text_of(full, "no system"), "User: q c\nAssistant:|a");
  EXPECT_EQ(text_of(full, "neither"), "User: q\nAssistant:|a");
  const Config constant = config("      format: \"{instruction}\"\n      system_prompt: \"Be {brief}. \"\n");
  EXPECT_EQ(text_of(constant, "both"), "Be {brief}. q {x}|a");
}

TEST(Axolotl, AColumnOfAFormatMayBeCalledAsAnotherField) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "d.jsonl", R"({"id": "one", "input": "what", "context": "where", "output": "a"})");
  const Config c = recipe(fmt::format("base_model: m\nmicro_batch_size: 1\nval_set_size: 0\ndatasets:\n"
                                      "  - path: {}\n    type:\n      field_instruction: input\n"
                                      "      field_input: context\n      format: \"{{instruction}} / {{input}}\"\n",
                                      (folder / "d.jsonl").string()))
                       .value;
  EXPECT_EQ(text_of(c, "one"), "what / where|a");
}

TEST(Axolotl, SpecialTokensAreThoseOfTheRun) {
  const ResolvedConfig r = recipe(
      "base_model: m\nmicro_batch_size: 1\nval_set_size: 0\nspecial_tokens:\n  eos_token: <|im_end|>\n"
      "  pad_token: <pad>\n  bos_token: <s>\n  unk_token:\n");
  EXPECT_EQ(r.value.model.eos_token, "<|im_end|>");
  EXPECT_EQ(r.value.model.pad_token, "<pad>");
  EXPECT_THAT(r.notes, Contains(HasSubstr("bos_token \"<s>\" has no effect")));
  EXPECT_THAT(r.notes, ::testing::Not(Contains(HasSubstr("unk_token"))));
  EXPECT_THAT(refusal_of_recipe("base_model: m\nval_set_size: 0\nspecial_tokens: </s>\n"),
              HasSubstr("expected an object"));
}

TEST(Axolotl, PretrainingRowsAreTexts) {
  const char* recipe_text = "base_model: m\nmicro_batch_size: 1\nval_set_size: 0\npretraining_dataset:\n{}\n";
  for (const char* rows : {"  - path: d\n    name: en\n    type: pretrain", "  - d", "  d", "  path: d"}) {
    const Config c = recipe(fmt::format(fmt::runtime(recipe_text), rows)).value;
    EXPECT_THAT(c.data.dataset_name, ElementsAre("d")) << rows;
    EXPECT_EQ(c.data.completion_only_loss, false) << rows;
  }
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
  EXPECT_THAT(refused("lora_fan_in_fan_out: true"), HasSubstr("\"lora_fan_in_fan_out\": true cannot be honored"));
  EXPECT_THAT(refused("tokens: ['<x>']"), HasSubstr("the vocabulary stays"));
  EXPECT_THAT(refused("adapter: qlora\nload_in_4bit: false"), HasSubstr("already set load_in_4bit"));
  EXPECT_THAT(refused("micro_batch_size: 4\nbatch_size: 6"), HasSubstr("no multiple of micro_batch_size"));
}

}  // namespace
}  // namespace qtrain
