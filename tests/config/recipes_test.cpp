// Configs as users of other tools have them; what they come to is written from the documentation of those tools.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(LlamaFactory, ATrackerIsAWarning) {
  EXPECT_THAT(recipe("stage: sft\nuse_swanlab: true\n").warnings,
              ElementsAre(HasSubstr("nothing is sent to a tracker")));
  EXPECT_THAT(recipe("stage: sft\nuse_swanlab: false\n").warnings, ElementsAre());
}

TEST(LlamaFactory, AnswersWithoutThoughtsAreAColumnOfTheRows) {
  const std::string said = refusal_of_recipe("stage: sft\nenable_thinking: false\n");
  EXPECT_THAT(said, HasSubstr("\"enable_thinking\": false cannot be honored"));
  EXPECT_THAT(said, HasSubstr("{\"enable_thinking\": false} as a column of the rows"));
  EXPECT_TRUE(recipe("stage: sft\nenable_thinking: true\n").inert.empty());
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

// The columns of its data/README.md and data/dataset_info.json.
TEST(LlamaFactory, RowsAreMadeOfTheColumnsThatTheRegistryNames) {
  const qtrain::testing::TempFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_file(folder / "data" / "dataset_info.json", R"({
    "all": {"file_name": "all.json", "columns": {"prompt": "question", "query": "context", "response": "answer",
                                                 "system": "system_prompt", "history": "turns"}},
    "orca": {"file_name": "orca.jsonl", "columns": {"prompt": "question", "response": "answer"}},
    "wiki": {"file_name": "wiki.txt", "columns": {"prompt": "text"}},
    "web": {"file_name": "web.jsonl", "columns": {"prompt": "content"}},
    "plain": {"file_name": "plain.jsonl", "columns": {"prompt": "instruction", "query": "", "response": "output"}}})");
  write_file(folder / "data" / "plain.jsonl", R"({"instruction": "q", "output": "a", "input": "not named", )"
                                              R"("chat_template_kwargs": {"enable_thinking": false}})");
  write_file(folder / "data" / "all.json", R"([{"question": "q", "context": "c", "answer": "a", "system_prompt": "s",
                                               "turns": [["q0", "a0"]]}])");
  write_file(folder / "data" / "orca.jsonl", R"({"question": "q", "answer": "a", "input": "not named"})");
  write_file(folder / "data" / "wiki.txt", "one\ntwo\n");
  write_file(folder / "data" / "web.jsonl", R"({"content": "page", "url": "u"})");
  const auto first = [&](const char* name) {
    write_file(folder / "c.yaml", fmt::format("finetuning_type: lora\ndataset: {}\n", name));
    const RawRows rows = data_rows(load_config(folder / "c.yaml").value, Split::train);
    return read_sample(rows.parse(rows.size() - 1), {});
  };
  const Sample all = first("all"), orca = first("orca");
  EXPECT_EQ(dump_json(all.messages), R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q0"}, )"
                                     R"({"role": "assistant", "content": "a0"}, {"role": "user", "content": "q\nc"}])");
  EXPECT_EQ(all.completion[0]["content"], "a");
  EXPECT_EQ(dump_json(orca.messages), R"([{"role": "user", "content": "q"}])") << "a query is used only if it is named";
  const Sample plain = first("plain");
  EXPECT_EQ(dump_json(plain.messages), R"([{"role": "user", "content": "q"}])") << "an empty name is none";
  EXPECT_EQ(plain.template_kwargs["enable_thinking"], false);
  EXPECT_EQ(first("wiki").text, "two");
  EXPECT_EQ(first("web").text, "page");
}

TEST(LlamaFactory, EvaluationRowsOfTheRegistryHaveTheUsualNames) {
  const qtrain::testing::TempFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_file(folder / "data" / "dataset_info.json", R"({
    "plain": {"file_name": "plain.json", "columns": {"prompt": "instruction", "response": "output"}},
    "named": {"file_name": "named.json", "columns": {"prompt": "question", "response": "output"}}})");
  write_file(folder / "c.yaml", "finetuning_type: lora\ndataset: plain\neval_dataset: plain\n");
  const ResolvedConfig plain = load_config(folder / "c.yaml");
  EXPECT_THAT(plain.value.data.eval_dataset_name, ElementsAre((folder / "data/plain.json").string()));
  EXPECT_THAT(plain.notes, Contains(HasSubstr("of evaluation rows all columns count")));
  write_file(folder / "c.yaml", "finetuning_type: lora\ndataset: plain\neval_dataset: named\n");
  const auto problems = config_problems(folder / "c.yaml");
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].cause, HasSubstr("columns of evaluation rows have names of their own"));
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
