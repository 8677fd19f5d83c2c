// Prepares rows as LLaMA-Factory 0.9.5 and axolotl 0.19 do, according to their sources.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/os/file.h"
#include "data/row_shapes.h"
#include "tests/config/recipes.h"
#include "tests/config/support.h"
#include "tests/core/temp_folder.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

using test::recipe;
using test::refusal_of_recipe;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const std::string kFactory = "stage: sft\nmodel_name_or_path: m\n", kAxolotl =
                                                                        "base_model: m\nsequence_len: 9\n"
                                                                        "sample_packing: false\n";

/// A model folder: a tokenizer with an end token for chats, and optionally a chat template.
class ModelFolder : public ::testing::Test {
 protected:
  ModelFolder() { write_file(folder_ / "tokenizer.json", R"({"added_tokens": [{"content": "<|im_end|>"}]})"); }
  ResolvedConfig factory(const std::string& more) {
    return recipe(with_model("model_name_or_path", "stage: sft", more));
  }
  std::string with_model(const std::string& key, const std::string& sure, const std::string& more) {
    return fmt::format("{}\n{}: {}\n{}\n", sure, key, (folder_ / "").string(), more);
  }

  qtrain::testing::TempFolder folder_;
};

TEST_F(ModelFolder, AFormatThatIsNamedIsRenderedOrRefusedWhereTheModelHasNoTemplate) {
  struct Case {
    const char *name, *format, *end;
  };
  for (const auto& [name, format, end] :
       {Case{"qwen", "llamafactory_qwen", "<|im_end|>"}, Case{"qwen3", "llamafactory_qwen3", "<|im_end|>"},
        Case{"qwen3_nothink", "llamafactory_qwen3_nothink", "<|im_end|>"}, Case{"chatml", "chatml", "<|im_end|>"},
        Case{"vicuna", "llamafactory_vicuna", ""}, Case{"alpaca", "llamafactory_alpaca", ""},
        Case{"deepseek", "llamafactory_deepseek", ""}, Case{"default", "llamafactory_default", ""},
        Case{"llama2", "llamafactory_llama2", ""}, Case{"llama3", "llama3", ""}, Case{"yi", "llamafactory_yi", ""}}) {
    const ModelSection model = factory(fmt::format("template: {}", name)).value.model;
    EXPECT_EQ(model.chat_template_path, format) << name;
    EXPECT_EQ(model.eos_token.value_or(""), end) << name;
  }
  for (const char* name : {"glm4", "gpt_oss", "qwen9", "index"})
    EXPECT_THAT(refusal_of_recipe(with_model("model_name_or_path", "stage: sft", fmt::format("template: {}", name))),
                AllOf(HasSubstr(name), HasSubstr("no chat template")));
  EXPECT_EQ(recipe(with_model("model_name_or_path", "stage: pt", "template: glm4")).value.model.chat_template_path,
            std::nullopt)
      << "plain texts need no template";
  for (const auto& [name, format, end] : {Case{"qwen_25", "axolotl_qwen_25", ""},
                                          Case{"alpaca", "alpaca", ""},
                                          Case{"phi_35", "axolotl_phi_35", ""},
                                          Case{"phi_3", "axolotl_phi_3", ""},
                                          Case{"tokenizer_default_fallback_chatml", "chatml", ""},
                                          Case{"tokenizer_default_fallback_qwen_25", "axolotl_qwen_25", ""},
                                          Case{"llama3", "llama3", ""},
                                          Case{"mistral_v1", "axolotl_mistral_v1", ""},
                                          Case{"mistral_v2v3", "axolotl_mistral_v2v3", ""},
                                          Case{"mistral_v3_tekken", "axolotl_mistral_v3_tekken", ""},
                                          Case{"mistral_v7_tekken", "axolotl_mistral_v7_tekken", ""},
                                          Case{"qwen3", "axolotl_qwen3", ""},
                                          Case{"qwen3_5", "axolotl_qwen3", ""},
                                          Case{"phi_4", "axolotl_phi_4", ""},
                                          Case{"metharme", "axolotl_metharme", ""},
                                          Case{"deepseek_v3", "axolotl_deepseek_v3", ""},
                                          Case{"llama4", "axolotl_llama4", ""},
                                          Case{"exaone", "axolotl_exaone", ""},
                                          Case{"gemma3", "gemma", ""},
                                          Case{"tokenizer_default_fallback_phi_4", "axolotl_phi_4", ""}}) {
    const std::string text = with_model("base_model", "sample_packing: false", fmt::format("chat_template: {}", name));
    EXPECT_EQ(recipe(text).value.model.chat_template_path, format) << name;
    EXPECT_EQ(recipe(text).value.model.eos_token, std::nullopt) << name;
  }
  for (const char* name : {"jamba", "command_a", "command_a_rag", "command_a_tool_use", "exaone4", "gemma4",
                           "gemma4_unified", "llama3_2_vision", "llava", "tokenizer_default_fallback_jamba"})
    EXPECT_THAT(
        refusal_of_recipe(with_model("base_model", "sample_packing: false", fmt::format("chat_template: {}", name))),
        AllOf(HasSubstr("no chat template"), HasSubstr("put a chat_template.jinja into the model's folder")))
        << name;
}

TEST_F(ModelFolder, AModelsOwnTemplateServesNamesOfItsFamily) {
  write_file(folder_ / "chat_template.jinja", "{{ messages }}");
  const ResolvedConfig config = factory("template: qwen3");
  EXPECT_EQ(config.value.model.chat_template_path, std::nullopt);
  EXPECT_EQ(config.value.model.eos_token, "<|im_end|>") << "in LLaMA-Factory, rows and answers end with it";
  EXPECT_THAT(config.diagnostics.notes(), Contains(HasSubstr("the chat template of the model's folder is used")));
  EXPECT_EQ(factory("template: vicuna").value.model.chat_template_path, "llamafactory_vicuna");
  EXPECT_EQ(
      recipe(with_model("base_model", "sample_packing: false", "chat_template: tokenizer_default_fallback_chatml"))
          .value.model.chat_template_path,
      std::nullopt);
  write_file(folder_ / "tokenizer.json", "{}");
  EXPECT_EQ(factory("template: qwen3").value.model.eos_token, std::nullopt);
}

TEST_F(ModelFolder, RowsOfTypeAlpacaHaveItsFormatWhereTheModelHasNoTemplate) {
  const std::string rows = (folder_ / "d.jsonl").string();
  write_file(rows,
             "{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\"}\n{\"instruction\":\"i\",\"output\":\"o\"}\n");
  const auto text = [&](const char* more) {
    return with_model("base_model", "sample_packing: false",
                      fmt::format("val_set_size: 0\ndatasets:\n  - {{path: {}, type: alpaca}}\n{}", rows, more));
  };
  const Config config = recipe(text("")).value;
  const RawRows read = data_rows(config, Split::train);
  ASSERT_EQ(read.size(), 2);
  EXPECT_EQ(read_sample(read.parse(0), {}).prompt,
            "Below is an instruction that describes a task, paired with an input that provides further context. Write "
            "a response that appropriately completes the request.\n\n### Instruction:\ni\n\n### Input:\nx\n\n### "
            "Response:\n");
  EXPECT_EQ(read_sample(read.parse(1), {}).prompt,
            "Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\ni\n\n### Response:\n");
  EXPECT_EQ(read_sample(read.parse(1), {}).text, "o");
  EXPECT_FALSE(config.data.assistant_only_loss);
  EXPECT_EQ(config.data.completion_only_loss, true);
  EXPECT_EQ(recipe(text("chat_template: chatml")).value.data.dataset_name, std::vector<std::string>{rows});
  write_file(folder_ / "chat_template.jinja", "{{ messages }}");
  EXPECT_EQ(recipe(text("")).value.data.dataset_name, std::vector<std::string>{rows});
}

TEST_F(ModelFolder, TheFormatOfTheCommandLineReplacesThatOfTheFile) {
  const auto model = [&](const char* in_file, const char* over) {
    return recipe(with_model("model_name_or_path", "stage: sft", fmt::format("template: {}", in_file)),
                  {{"template", over}})
        .value.model;
  };
  EXPECT_EQ(model("chatml", "yi").chat_template_path, "llamafactory_yi");
  EXPECT_EQ(model("chatml", "yi").eos_token, std::nullopt);
  EXPECT_EQ(model("yi", "chatml").chat_template_path, "chatml");
  EXPECT_EQ(model("yi", "chatml").eos_token, "<|im_end|>");
  EXPECT_EQ(model("qwen", "vicuna").chat_template_path, "llamafactory_vicuna");
  EXPECT_EQ(model("qwen", "vicuna").eos_token, std::nullopt);
}

TEST_F(ModelFolder, AnswersOfTextsAreLearntWhereThereIsNoTemplate) {
  const DataSection data = factory("").value.data;
  EXPECT_FALSE(data.assistant_only_loss);
  EXPECT_EQ(data.completion_only_loss, true);
}

TEST(LlamaFactory, LearnsAnswersOfTheHistoryAndCutsQuestions) {
  const DataSection data = recipe(kFactory).value.data;
  EXPECT_TRUE(data.assistant_only_loss);
  EXPECT_EQ(data.completion_only_loss, false) << "answers before the last are learned too";
  EXPECT_EQ(data.truncation_mode, TooLong::keep_answers);
  EXPECT_TRUE(data.skip_broken_turns);
  EXPECT_TRUE(recipe(kFactory + "mask_history: true").value.data.last_turn_only_loss);
  EXPECT_EQ(recipe(kFactory + "train_on_prompt: false").value.data.completion_only_loss, false);
  EXPECT_FALSE(recipe(kFactory + "train_on_prompt: true").value.data.assistant_only_loss);
}

TEST(LlamaFactory, PretrainingCutsBlocksFromOneText) {
  const DataSection data = recipe("stage: pt\nmodel_name_or_path: m\ncutoff_len: 64").value.data;
  EXPECT_EQ(data.train_packing(), Packing::blocks);
  EXPECT_TRUE(data.first_prompt_only) << "pre-training has no answers";
  EXPECT_FALSE(recipe(kFactory).value.data.first_prompt_only);
  EXPECT_EQ(recipe("stage: pt\nmodel_name_or_path: m\npacking: false").value.data.train_packing(), Packing::none);
  EXPECT_EQ(recipe(kFactory + "packing: true").value.data.train_packing(), Packing::bfd);
}

// With packing, LLaMA-Factory subtracts one from cutoff_len, because it pads each row with one token.
TEST(LlamaFactory, PackedRowsHaveOneTokenLess) {
  const std::pair<const char*, std::int64_t> cases[] = {{"packing: true\ncutoff_len: 64", 63},
                                                        {"neat_packing: true\ncutoff_len: 64", 63},
                                                        {"packing: true", 2047},
                                                        {"packing: false\ncutoff_len: 64", 64},
                                                        {"neat_packing: false", 2048},
                                                        {"cutoff_len: 64", 64},
                                                        {"packing: true\nmax_length: 64", 64}};
  for (const auto& [more, length] : cases)
    EXPECT_EQ(recipe(fmt::format("{}{}\n", kFactory, more)).value.data.max_length, length) << more;
  const std::string pretraining = "stage: pt\nmodel_name_or_path: m\ncutoff_len: 64\n";
  EXPECT_EQ(recipe(pretraining).value.data.max_length, 64) << "pre-training always packs, without shortening rows";
  EXPECT_EQ(recipe(pretraining + "packing: true\n").value.data.max_length, 63);
  const ResolvedConfig over = recipe(kFactory + "packing: true\ncutoff_len: 64\n", {{"cutoff_len", "32"}});
  EXPECT_EQ(over.value.data.max_length, 31);
  EXPECT_THAT(over.diagnostics.notes(), Contains(HasSubstr("rows have at most 31 tokens")));
  EXPECT_EQ(recipe(kFactory + "packing: true\ncutoff_len: 64\n", {{"packing", "false"}}).value.data.max_length, 64);
}

TEST(LlamaFactory, OnlyNamedColumnsOfConversationsCount) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "dataset_info.json", R"({
    "plain": {"file_name": "m.json", "formatting": "sharegpt", "columns": {"messages": "messages", "system": "system"}},
    "renamed": {"file_name": "m.json", "formatting": "openai", "columns": {"messages": "talk", "system": "sys"}},
    "liked": {"file_name": "m.json", "columns": {"messages": "messages", "kto_tag": "label"}},
    "seen": {"file_name": "m.json", "columns": {"messages": "messages", "images": "pictures"}}})");
  const auto text = [&](const char* name) {
    return fmt::format("{}dataset_dir: {}\ndataset: {}\n", kFactory, (folder / "").string(), name);
  };
  const Json plain = recipe(text("plain")).value.data.dataset_mixture.at(0);
  EXPECT_EQ(plain.at("columns"), (Json{"chat_template_kwargs", "messages", "system"}));
  const Json renamed = recipe(text("renamed")).value.data.dataset_mixture.at(0);
  EXPECT_EQ(renamed.at("column_mapping"), (Json{{"messages", "talk"}, {"system", "sys"}}));
  EXPECT_THAT(refusal_of_recipe(text("liked")), HasSubstr("preference training is not available"));
  EXPECT_THAT(refusal_of_recipe(text("seen")), HasSubstr("models take text only"));
}

TEST(Axolotl, RowsThatAreTooLongAreDroppedCutOrAnError) {
  const std::pair<const char*, TooLong> cases[] = {{"", TooLong::drop},
                                                   {"excess_length_strategy: drop", TooLong::drop},
                                                   {"excess_length_strategy: truncate", TooLong::keep_start},
                                                   {"excess_length_strategy: raise", TooLong::raise},
                                                   {"excess_length_strategy: null", TooLong::drop}};
  for (const auto& [more, mode] : cases) EXPECT_EQ(recipe(kAxolotl + more).value.data.truncation_mode, mode) << more;
  EXPECT_THAT(refusal_of_recipe(kAxolotl + "excess_length_strategy: shrink"), HasSubstr("shrink"));
  EXPECT_TRUE(recipe(kAxolotl).value.data.split_long_texts) << "texts are cut into several rows";
}

std::string with_entries(const std::vector<std::string>& entries) {
  std::string text = kAxolotl + "datasets:\n";
  for (const std::string& entry : entries) text += fmt::format("  - {{path: d, {}}}\n", entry);
  return text;
}

TEST(Axolotl, WhatASourceSaysOfItsRowsTakesEffectOrIsRefused) {
  for (const char* fine :
       {"train_on_eos: turn", "train_on_eot: turn", "roles_to_train: [assistant]", "chat_template: tokenizer_default"})
    EXPECT_NO_THROW(recipe(with_entries({fmt::format("type: chat_template, {}", fine)}))) << fine;
  for (const char* refused :
       {"train_on_eos: last", "train_on_eos: all", "train_on_eot: all", "roles_to_train: [user]",
        "roles_to_train: [assistant, tool]", "message_field_training: train", "message_field_training_detail: parts",
        "chat_template_jinja: x.jinja", "drop_system_message: true"}) {
    const std::string member(refused, std::string_view(refused).find(':'));
    EXPECT_THAT(refusal_of_recipe(with_entries({fmt::format("type: chat_template, {}", refused)})),
                AllOf(HasSubstr(member), HasSubstr("cannot be honored")))
        << refused;
  }
}

TEST(Axolotl, AChatTemplateOfAllSourcesIsThatOfTheRun) {
  const std::string chatml = "type: chat_template, chat_template: chatml", none = "type: chat_template";
  EXPECT_EQ(recipe(with_entries({chatml})).value.model.chat_template_path, "chatml");
  EXPECT_EQ(recipe(with_entries({chatml, chatml})).value.model.chat_template_path, "chatml");
  EXPECT_EQ(recipe(with_entries({chatml, "type: completion"})).value.model.chat_template_path, "chatml");
  for (const std::string& other : {none, std::string("type: chat_template, chat_template: llama3")})
    EXPECT_THAT(refusal_of_recipe(with_entries({chatml, other})), HasSubstr("a run has one chat template")) << other;
  for (const char* other : {"llama3", "qwen_25"})
    EXPECT_THAT(refusal_of_recipe(with_entries({chatml}) + fmt::format("chat_template: {}\n", other)),
                HasSubstr("chat_template"))
        << other;
}

TEST(Axolotl, TextsAreLearntWholeBesideConversations) {
  const DataSection mixed = recipe(with_entries({"type: chat_template", "type: completion"})).value.data;
  EXPECT_TRUE(mixed.assistant_only_loss);
  EXPECT_TRUE(mixed.learn_plain_texts);
  EXPECT_FALSE(recipe(with_entries({"type: chat_template"})).value.data.learn_plain_texts);
  EXPECT_FALSE(recipe(with_entries({"type: completion"})).value.data.assistant_only_loss);
}

TEST(Axolotl, TheUsualWarmUpHasALimitAndSharesAreRoundedDown) {
  struct Case {
    const char* more;
    std::int64_t updates, warmup;
  };
  for (const auto& [more, updates, warmup] :
       {Case{"", 1000, 30}, Case{"", 10000, 100}, Case{"", 99, 2}, Case{"", 34, 2}, Case{"", 20, 0},
        Case{"warmup_ratio: 0.1", 10009, 1000}, Case{"warmup_ratio: 0.1", 19, 2}, Case{"warmup_steps: 7", 10000, 7}})
    EXPECT_EQ(warmup_steps(recipe(kAxolotl + more).value.training, updates), warmup) << more << " " << updates;
}

TEST(OtherTools, PreferencesAreNamedInTheError) {
  const std::pair<std::string, const char*> cases[] = {
      {"stage: dpo\nmodel_name_or_path: m", "DPO"},
      {"stage: kto\nmodel_name_or_path: m", "KTO"},
      {"stage: rm\nmodel_name_or_path: m", "reward model"},
      {"stage: ppo\nmodel_name_or_path: m", "PPO"},
      {kAxolotl + "rl: dpo", "preference training (DPO)"},
      {kAxolotl + "rl: orpo", "ORPO"},
      {kAxolotl + "rl: grpo", "reinforcement learning (GRPO)"},
      {kAxolotl + "rl: something", "only supervised fine-tuning is available"},
      {kAxolotl + "reward_model: true", "RM"},
      {"model_name_or_path: m\nmethod: orpo", "ORPO"},
      {"model_name_or_path: m\nbeta: 0.1", "DPO"},
      {"model_name_or_path: m\ndesirable_weight: 1.0", "KTO"}};
  for (const auto& [text, name] : cases) EXPECT_THAT(refusal_of_recipe(text), HasSubstr(name)) << text;
  for (const char* off : {"rl: null", "rl: ''", "reward_model: false"}) EXPECT_NO_THROW(recipe(kAxolotl + off)) << off;
}

TEST(OtherTools, WhatChangesNoResultsIsOnlyToldOf) {
  for (const std::string& text : {std::string("model_name_or_path: m\nhub_strategy: checkpoint"),
                                  kFactory + "hub_strategy: all_checkpoints", kAxolotl + "push_dataset_to_hub: a/b"})
    EXPECT_THAT(recipe(text).diagnostics.warnings(), Contains(HasSubstr("has no effect"))) << text;
  const ResolvedConfig offloaded = recipe(kAxolotl + "gradient_checkpointing: offload_disk");
  EXPECT_TRUE(offloaded.value.training.activation_offloading);
  EXPECT_THAT(offloaded.diagnostics.notes(), Contains(HasSubstr("not to disk")));
}

TEST(LlamaFactory, ItsNewFormIsCalledByItsName) {
  for (const char* key : {"kernel_config: {name: auto}", "dist_config: {name: fsdp2}", "model_class: llm"})
    EXPECT_THAT(refusal_of_recipe(fmt::format("model: m\noutput_dir: o\ntrain_dataset: d\n{}\n", key)),
                AllOf(HasSubstr("v1 form of LLaMA-Factory"), HasSubstr("model_name_or_path")));
}

// FSDP's own switch for activation checkpointing, in any launcher's form. On its own it enables recomputation; together
// with gradient_checkpointing, transformers refuses it.
TEST(Fsdp, ItsSwitchAloneTurnsRecomputationOn) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "accelerate.yaml",
             "distributed_type: FSDP\nfsdp_config:\n  fsdp_activation_checkpointing: true\n");
  write_file(folder / "fsdp.json", R"({"activation_checkpointing": true})");
  const std::string accelerate = dump_json((folder / "accelerate.yaml").string()),
                    file = dump_json((folder / "fsdp.json").string());
  for (
      const std::string& launcher :
      {std::string(R"("fsdp": "full_shard auto_wrap", "fsdp_config": {"activation_checkpointing": true})"),
       std::string(R"("fsdp": true, "fsdp_config": {"fsdp_activation_checkpointing": true})"),
       R"("fsdp": true, "fsdp_config": )" + file, R"("accelerate_config": )" + accelerate,
       std::string(
           R"("base_model": "m", "sequence_len": 9, "sample_packing": false, "fsdp": ["full_shard"], "fsdp_config": {"activation_checkpointing": true})"),
       std::string(R"("base_model": "m", "sequence_len": 9, "sample_packing": false, "fsdp_version": 2, "fsdp": true,)"
                   R"( "fsdp_config": {"fsdp_activation_checkpointing": true})")}) {
    const auto with = [&](const char* more) { return "{" + launcher + more + "}"; };
    for (const char* off : {"", R"(, "gradient_checkpointing": false)"})
      EXPECT_EQ(value_of(with(off)).training.gradient_checkpointing.policy, "block") << with(off);
    EXPECT_NE(complaint_about(with(R"(, "gradient_checkpointing": true)")).find("both true"), std::string::npos)
        << launcher;
    EXPECT_EQ(value_of(with(""), {{"gradient_checkpointing", "false"}}).training.gradient_checkpointing.policy, "none")
        << launcher;
  }
}

}  // namespace
}  // namespace qtrain
