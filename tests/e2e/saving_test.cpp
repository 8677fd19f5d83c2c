// What a run leaves behind: files and their layout, the checkpoints that are kept, and whether other programs can
// continue from them.
#include <fmt/format.h>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

TEST(Saving, AFullRunLeavesAModelFolder) {
  const TempFolder folder;
  train_ok(folder.path(), tiny_run(folder / "out"));
  const Json config = read_json(folder / "out/config.json");
  EXPECT_EQ(config.at("architectures"), Json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(config.at("dtype"), "float32");
  const auto before = tensors_of(kGoldens / "llama_gqa3_tied"), after = tensors_of(folder / "out");
  EXPECT_EQ(before.size(), after.size());
  EXPECT_FALSE(after.contains("lm_head.weight")) << "the head is tied";
  for (const auto& [name, values] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_NE(values, after.at(name)) << name << " was not trained";
  }
  EXPECT_EQ(SafetensorsReader(folder / "out").metadata().at("format"), "pt");
}

/// Renders rows with and without tools by the templates of a folder.
Outcome rendered(const fs::path& model, const fs::path& scratch) {
  const Json messages{{{"role", "user"}, {"content", "hi"}}};
  const Json tools{{{"type", "function"}, {"function", {{"name", "f"}}}}};
  write_file(scratch, jsonl({{{"messages", messages}}, {{"messages", messages}, {"tools", tools}}}));
  return qtrain(
      {.words = {"render", "--model", model.string(), "--input", scratch.string(), "--add_generation_prompt"}});
}

TEST(Saving, TheTokenizerAndTheTemplateOfTheRunAreSaved) {
  const TempFolder folder;
  write_untrained_model(folder / "text");
  fs::create_directories(folder / "text/additional_chat_templates");
  write_file(folder / "text/additional_chat_templates/tool_use.jinja", "with tools");
  Json config = tiny_run(folder / "out");
  config.update({{"max_steps", 1},
                 {"save_strategy", "steps"},
                 {"tokenizer_name_or_path", (folder / "text").string()},
                 {"chat_template_path", "zephyr"},
                 {"eos_token", "<|im_end|>"}});
  train_ok(folder.path(), config);
  EXPECT_EQ(bytes_of(folder / "out/tokenizer.json"), bytes_of(folder / "text/tokenizer.json"));
  qtrain_ok({.words = {"inspect", (folder / "out/checkpoint-1").string(), "--verify"}});
  const Outcome result = rendered(folder / "out", folder / "rows.jsonl");
  EXPECT_EQ(result.out, R"("<|user|>\nhi<|im_end|>\n<|assistant|>\n")"
                        "\n");
  EXPECT_THAT(result.err, HasSubstr("this chat format has no tools"))
      << "the folder's template for tools is not in use";
}

TEST(Saving, NamedTemplatesAreThoseOfTheRun) {
  const TempFolder folder;
  for (const char* name : {"model", "text"}) {
    write_untrained_model(folder / name);
    fs::create_directories(folder / name / "additional_chat_templates");
    for (const char* file : {"chat_template", "additional_chat_templates/tool_use", "additional_chat_templates/rag"})
      write_file(folder / name / (file + std::string(".jinja")), std::string(name) + " " + file);
    write_file(folder / name / "generation_config.json", dump_json({{"of", name}}));
  }
  fs::remove(folder / "text/additional_chat_templates/rag.jinja");
  for (const char* key : {"tokenizer_name_or_path", "chat_template_path"}) {
    Json config = tiny_run(folder / key);
    config.update({{"model_name_or_path", (folder / "model").string()},
                   {"random_init", true},
                   {"max_steps", 1},
                   {key, (folder / "text").string()}});
    train_ok(folder.path(), config);
    EXPECT_EQ(rendered(folder / key, folder / "rows.jsonl").out,
              "\"text chat_template\"\n\"text additional_chat_templates/tool_use\"\n");
    EXPECT_FALSE(fs::exists(folder / key / "additional_chat_templates/rag.jinja")) << key;
    EXPECT_EQ(read_json(folder / key / "generation_config.json").at("of"), "model") << key;
  }
}

/// The answer of a model to "x".
Json answer_to_x(const fs::path& scratch, std::vector<std::string> model) {
  write_file(scratch / "prompts.jsonl", jsonl({{{"prompt", "x"}}}));
  const fs::path output = scratch / "answers.jsonl";
  std::vector<std::string> words{"generate", "--raw", "--greedy", "--max_new_tokens", "5"};
  words.insert(words.end(), model.begin(), model.end());
  for (const std::string& word :
       {std::string("--input"), (scratch / "prompts.jsonl").string(), std::string("--output"), output.string()})
    words.push_back(word);
  qtrain_ok({.words = words});
  return read_jsonl(output).at(0);
}

// The second run teaches an adapter a different end token than the base model's, which only its own tokenizer files
// name.
TEST(Saving, AnswersOfARunEndAtTheEndTokenOfItsConfig) {
  const TempFolder folder;
  write_untrained_model(folder / "model");
  write_file(folder / "rows.jsonl", jsonl({{{"text", "x"}}, {{"text", "x"}}}));
  Json config = tiny_run(folder / "full");
  config.update({{"model_name_or_path", (folder / "model").string()},
                 {"random_init", true},
                 {"dataset_name", (folder / "rows.jsonl").string()},
                 {"max_steps", 30},
                 {"learning_rate", 0.02},
                 {"eos_token", "<|im_start|>"}});
  train_ok(folder.path(), config);
  EXPECT_EQ(read_json(folder / "full/config.json").at("eos_token_id"), 1);
  EXPECT_EQ(read_json(folder / "full/generation_config.json").at("eos_token_id"), Json::array({1, 2}));
  Json answer = answer_to_x(folder.path(), {"--model", (folder / "full").string()});
  EXPECT_EQ(answer.at("finish_reason"), "stop") << answer;
  EXPECT_EQ(answer.at("completion"), "");

  Json adapter = tiny_lora_run(folder / "adapter");
  adapter.update({{"model_name_or_path", (folder / "full").string()},
                  {"dataset_name", (folder / "rows.jsonl").string()},
                  {"max_steps", 60},
                  {"learning_rate", 0.05},
                  {"eos_token", "<|endoftext|>"}});
  train_ok(folder.path(), adapter);
  EXPECT_EQ(read_json(folder / "adapter/tokenizer_config.json").at("eos_token"), "<|endoftext|>");
  answer =
      answer_to_x(folder.path(), {"--model", (folder / "full").string(), "--adapter", (folder / "adapter").string()});
  EXPECT_EQ(answer.at("finish_reason"), "stop") << answer;
}

// A base model learns ChatML, whose turns end with a different token than its texts.
TEST(Saving, AnAutomaticEndTokenIsTheOneThatEndsAnswersOfTheTemplate) {
  const TempFolder folder;
  const fs::path model = folder / "model";
  write_untrained_model(model);
  Json values = read_json(model / "config.json");
  values["eos_token_id"] = 0;
  write_file(model / "config.json", dump_json(values));
  write_file(model / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  const Json turns{{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "a"}}};
  write_file(folder / "rows.jsonl", jsonl({{{"messages", turns}}}));
  Json config = tiny_run(folder / "out");
  config.update({{"model_name_or_path", model.string()},
                 {"dataset_name", (folder / "rows.jsonl").string()},
                 {"chat_template_path", "chatml"},
                 {"random_init", true},
                 {"eos_token", "auto"},
                 {"max_steps", 1}});
  const Outcome outcome = train_ok(folder.path(), config);
  EXPECT_THAT(outcome.err, HasSubstr("eos_token: auto is <|im_end|>"));
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("will not stop")));
  EXPECT_EQ(read_json(folder / "out/tokenizer_config.json").at("eos_token"), "<|im_end|>");
  EXPECT_EQ(read_json(folder / "out/config.json").at("eos_token_id"), 2);
  EXPECT_EQ(read_json(folder / "out/generation_config.json").at("eos_token_id"), Json::array({2, 0}));
  const std::string file = (folder / "config.json").string();
  for (const char* command : {"train", "validate", "estimate"}) {
    const Outcome other = qtrain({.words = {command, file, "chat_template_path=llama3"}});
    EXPECT_EQ(other.code, 2) << command;
    EXPECT_THAT(other.err + other.out, HasSubstr("eos_token is auto, but the chat template does not end answers with"))
        << command;
    const Outcome unset =
        qtrain_ok({.words = {command, file, "eos_token=null", "output_dir=" + (folder / "o").string()}});
    EXPECT_THAT(unset.err + unset.out, HasSubstr("Set eos_token: auto, or eos_token: \"<|im_end|>\"")) << command;
  }
}

// 6 operations per token and weight, as transformers counts weights with num_parameters(exclude_embeddings=True), on
// this model and with peft's adapters of rank 4 on it: transformers 5.23, peft 0.21.
TEST(Saving, OperationsAreCountedAsTransformersDoes) {
  struct Case {
    Json changes;
    double weights;
  };
  const Json q{{"use_peft", true}, {"lora_r", 4}, {"lora_target_modules", {"q_proj"}}};
  const auto saving = [&](const Json& modules) {
    Json changes = q;
    changes["lora_modules_to_save"] = modules;
    return changes;
  };
  for (const Case& c :
       {Case{Json::object(), 4194},
        Case{{{"use_peft", true}, {"lora_r", 4}, {"lora_target_modules", "all-linear"}}, 6114},
        Case{saving({"lm_head"}), 5634}, Case{saving({"norm", "embed_tokens"}), 4572},
        Case{{{"use_peft", true}, {"lora_r", 4}, {"lora_target_modules", {"q_proj", "embed_tokens"}}}, 4810}}) {
    const TempFolder folder;
    Json config = tiny_run(folder / "out");
    config.update({{"save_strategy", "steps"}, {"save_steps", 3}, {"max_steps", 3}});
    config.update(c.changes);
    for (const int steps : {3, 5}) {  // the second run continues from the first
      config["max_steps"] = steps;
      train_ok(folder.path(), config);
      const Json state = read_json(folder / "out/trainer_state.json");
      const double expected = 6 * c.weights * state.at("num_input_tokens_seen").get<double>();
      EXPECT_GT(expected, 0);
      EXPECT_EQ(state.at("total_flos"), expected) << c.changes;
      EXPECT_EQ(history(folder / "out", "total_flos").back().at("total_flos"), expected) << c.changes;
      EXPECT_EQ(read_json(folder / "out/train_results.json").at("total_flos"), expected) << c.changes;
    }
  }
}

TEST(Saving, TheLossOnScreenIsThatOfTheLoggedRow) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config["logging_steps"] = 4;
  const Outcome outcome = train_ok(folder.path(), config);
  const auto rows = history(folder / "out", "loss");
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    const std::string line = fmt::format("step {}/8", row.at("step").get<int>());
    const std::size_t begin = outcome.err.find(line);
    ASSERT_NE(begin, std::string::npos) << outcome.err;
    EXPECT_THAT(outcome.err.substr(begin, outcome.err.find('\n', begin) - begin),
                HasSubstr(fmt::format("loss {:.4f} ", row.at("loss").get<double>())));
  }
}

TEST(Saving, WeightsKeepTheDtypeOfTheConfig) {
  const TempFolder folder;
  for (const char* dtype : {"bfloat16", "float16"}) {
    Json config = tiny_run(folder / dtype);
    config["dtype"] = dtype;
    train_ok(folder.path(), config);
    EXPECT_EQ(read_json(folder / dtype / "config.json").at("dtype"), dtype);
    const SafetensorsReader reader(folder / dtype);
    EXPECT_EQ(name_of(reader.at("model.norm.weight").dtype), std::string_view(dtype));
  }
}

TEST(Saving, AnAdapterRunLeavesWhatPeftWrites) {
  const TempFolder folder;
  Json config = tiny_lora_run(folder / "out");
  config.update({{"lora_target_modules", Json::array({"q_proj", "down_proj"})}, {"use_rslora", true}});
  train_ok(folder.path(), config);
  EXPECT_FALSE(fs::exists(folder / "out/model.safetensors"));
  const Json adapter = read_json(folder / "out/adapter_config.json");
  EXPECT_THAT(keys_of(adapter),
              IsSupersetOf({"base_model_name_or_path", "bias", "inference_mode", "lora_alpha", "lora_dropout",
                            "peft_type", "r", "target_modules", "task_type", "use_rslora"}));
  EXPECT_TRUE(std::ranges::is_sorted(keys_of(adapter)));
  EXPECT_EQ(adapter.at("peft_type"), "LORA");
  EXPECT_EQ(adapter.at("task_type"), "CAUSAL_LM");
  EXPECT_EQ(adapter.at("r"), 4);
  EXPECT_EQ(adapter.at("lora_alpha"), 8);
  EXPECT_EQ(adapter.at("lora_dropout"), 0.2);
  EXPECT_EQ(adapter.at("use_rslora"), true);
  EXPECT_EQ(adapter.at("base_model_name_or_path"), config["model_name_or_path"]);
  EXPECT_EQ(adapter.at("target_modules"), Json::array({"down_proj", "q_proj"}));
  const auto tensors = tensors_of(folder / "out");
  EXPECT_EQ(tensors.size(), 2u * 2 * 2);  // layers, modules, A and B
  const std::string layer = "base_model.model.model.layers.1.";
  const SafetensorsReader reader(folder / "out");
  EXPECT_EQ(reader.at(layer + "self_attn.q_proj.lora_A.weight").shape, (Shape{4, 18}));
  EXPECT_EQ(reader.at(layer + "self_attn.q_proj.lora_B.weight").shape, (Shape{18, 4}));
  EXPECT_EQ(reader.at(layer + "mlp.down_proj.lora_A.weight").shape, (Shape{4, 22}));
}

TEST(Saving, TrainerStateAndMetricsHaveWhatTransformersLogs) {
  const TempFolder folder;
  train_ok(folder.path(), tiny_run(folder / "out"));
  const Json state = read_json(folder / "out/trainer_state.json");
  EXPECT_TRUE(std::ranges::is_sorted(keys_of(state)));
  EXPECT_EQ(state.at("global_step"), 8);
  EXPECT_EQ(state.at("max_steps"), 8);
  const auto rows = history(folder / "out", "loss");
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_THAT(keys_of(rows[0]), ElementsAre("epoch", "grad_norm", "learning_rate", "loss", "num_tokens", "step"));
  EXPECT_TRUE(state.at("log_history").back().contains("train_loss"));
  const auto metrics = read_jsonl(folder / "out/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 9u);
  EXPECT_THAT(keys_of(metrics[0]), IsSupersetOf({"time", "tokens_per_second", "data_wait_seconds", "rss_mb", "loss"}));
  EXPECT_EQ(metrics[3].at("loss"), rows[3].at("loss"));
  double sum = 0;
  for (const double loss : column(rows, "loss")) sum += loss;
  EXPECT_NEAR(read_json(folder / "out/train_results.json").at("train_loss").get<double>(), sum / 8, 1e-12);
  const Json resolved = read_json(folder / "out/resolved_config.json");
  EXPECT_EQ(resolved.at("values").at("learning_rate").at("value"), 0.005);
  const Json run = resolved.at("run");
  EXPECT_THAT(keys_of(run), ElementsAre("version", "device", "files", "files_sha256", "program_sha256", "device_kind",
                                        "folder", "ranks", "seed", "data_seed", "max_steps", "training_data",
                                        "training_data_sha256", "memory_plan"));
  EXPECT_THAT(keys_of(run.at("files")), Contains((kGoldens / "llama_gqa3_tied/model.safetensors").string()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "out/runs"), fs::directory_iterator()), 1);
}

TEST(Saving, TheResolvedConfigHasHashesOfAllFilesThatWereRead) {
  const TempFolder folder;
  write_untrained_model(folder / "model");
  fs::create_directories(folder / "model/additional_chat_templates");
  const fs::path own = folder / "model", chosen = folder / "chosen.jinja";
  write_file(own / "additional_chat_templates/tool_use.jinja", "with tools");
  write_file(own / "special_tokens_map.json", "{}");
  write_file(own / "generation_config.json", "{}");
  write_file(chosen, bytes_of(own / "chat_template.jinja"));
  fs::create_symlink("nowhere", own / "tokenizer.gone");
  Json config = tiny_run(folder / "out");
  config.update({{"model_name_or_path", (own / "config.json").string()},
                 {"chat_template_path", chosen.string()},
                 {"template_date", "2024-02-29"},
                 {"operand_copies", true},
                 {"max_steps", 1}});
  const Outcome o = train_ok(folder.path(), config);
  for (const char* key : {"template_date", "operand_copies"})
    EXPECT_THAT(o.err, ContainsRegex("config.json:[0-9]+: \"" + std::string(key) + "\" has no effect"));
  const Json resolved = read_json(folder / "out/resolved_config.json");
  EXPECT_EQ(resolved.at("ignored").at("template_date").at("reason"), "the chat template does not use the date");
  const Json files = resolved.at("run").at("files");
  std::vector<std::string> expected{chosen};
  for (const char* name :
       {"additional_chat_templates/tool_use.jinja", "chat_template.jinja", "config.json", "generation_config.json",
        "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"})
    expected.push_back(own / name);
  EXPECT_THAT(keys_of(files), ::testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(files.at(chosen.string()), files.at((own / "chat_template.jinja").string()));
}

TEST(Saving, TrainerStateCountsWholeStepsAndEpochs) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");  // 8 steps, 6 per epoch
  config.update({{"save_steps", 0.3}, {"logging_steps", 0.25}, {"num_train_epochs", 7}});
  train_ok(folder.path(), config);
  const Json state = read_json(folder / "out/trainer_state.json");
  EXPECT_EQ(state.at("num_train_epochs").dump(), "2");
  EXPECT_EQ(state.at("logging_steps").dump(), "2");
  EXPECT_EQ(state.at("save_steps").dump(), "3");
  EXPECT_EQ(state.at("eval_steps").dump(), "500") << "transformers' default if eval_strategy is not steps";
}

TEST(Saving, EvaluationWaitsForEvalDelayInTheUnitOfItsStrategy) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config.update({{"eval_dataset_name", config["dataset_name"]},
                 {"eval_strategy", "epoch"},
                 {"eval_delay", 2},
                 {"max_steps", -1},
                 {"num_train_epochs", 3}});
  train_ok(folder.path(), config);
  EXPECT_EQ(column(history(folder / "out", "eval_loss"), "step"), (std::vector<double>{12, 18}));
  for (const Json& row : read_jsonl(folder / "out/metrics.jsonl")) EXPECT_TRUE(row.contains("time")) << row;
}

TEST(Saving, StepsSavesAlsoAtTheLastStep) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config.update({{"save_strategy", "steps"}, {"save_steps", 3}});
  train_ok(folder.path(), config);
  EXPECT_THAT(checkpoint_names(folder / "out"), ElementsAre("checkpoint-3", "checkpoint-6", "checkpoint-8"));
  EXPECT_EQ(bytes_of(folder / "out/checkpoint-8/model.safetensors"), bytes_of(folder / "out/model.safetensors"));
}

TEST(Saving, EpochSavesAtTheEndOfEachEpochAndOfTheRun) {
  const TempFolder folder;
  Json config = tiny_run(folder / "out");  // 21 rows, four per step: 6 steps per epoch
  config.update({{"save_strategy", "epoch"}});
  train_ok(folder.path(), config);
  EXPECT_THAT(checkpoint_names(folder / "out"), ElementsAre("checkpoint-6", "checkpoint-8"));
}

}  // namespace
}  // namespace qtrain::e2e
