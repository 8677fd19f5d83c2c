// Errors have the right exit code, and their messages name the place and a remedy.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/device.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Wrong {
  std::string name;
  Json change;
  int code;
  std::vector<std::string> said;
};

class WrongConfig : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongConfig, EndsWithItsCodeAndSaysWhy) {
  const Wrong& w = GetParam();
  const TempFolder folder;
  Json config = tiny_run(folder / "out");
  config.update(w.change);
  write_file(folder / "run.json", dump_json(config, 2));
  const Outcome outcome = qtrain({.words = {(folder / "run.json").string()}});
  EXPECT_EQ(outcome.code, w.code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const std::string& text : w.said) EXPECT_THAT(outcome.err, HasSubstr(text));
  EXPECT_FALSE(fs::exists(folder / "out/model.safetensors"));
}

std::vector<Wrong> wrong_configs() {
  const std::string missing = "/nowhere/at/all";
  return {
      {"unknown_key", {{"learning_rat", 1}}, 2, {"run.json:", "learning_rat", "did you mean \"learning_rate\""}},
      {"wrong_type", {{"max_steps", "many"}}, 2, {"max_steps"}},
      {"out_of_range", {{"per_device_train_batch_size", 0}}, 2, {"per_device_train_batch_size"}},
      {"contradiction", {{"bf16", true}, {"fp16", true}}, 2, {"fp16"}},
      {"end_token_without_tokenizer", {{"eos_token", "</x>"}}, 3, {"neither tokenizer.json nor"}},
      {"no_eval_rows", {{"eval_strategy", "steps"}}, 2, {"eval_dataset_name"}},
      {"trained_in_4_bits", {{"load_in_4bit", true}}, 2, {"load_in_4bit", "use_peft"}},
      {"missing_model", {{"model_name_or_path", missing}}, 3, {missing}},
      {"folder_without_model", {{"model_name_or_path", kGoldens.string()}}, 3, {"config.json"}},
      {"missing_data", {{"dataset_name", missing + ".jsonl"}}, 3, {missing}},
      {"missing_eval_data", {{"eval_dataset_name", missing + ".jsonl"}, {"eval_strategy", "epoch"}}, 3, {missing}},
      {"missing_adapter", {{"adapter_name_or_path", missing}}, 3, {missing}},
      {"no_such_layer_beside_others",
       {{"use_peft", true},
        {"lora_target_modules", {"q_proj", "k_prj", "c_attn"}},
        {"rank_pattern", {{"q_proj", 4}, {"v_proj", 2}}},
        {"alpha_pattern", {{"layers.1.self_attn.q_proj", 4}, {"layers.2.self_attn.q_proj", 2}}}},
       2,
       {"lora_target_modules: \"k_prj\" matches no layer of the model (did you mean \"k_proj\"?)",
        "lora_target_modules: \"c_attn\" matches no layer", "rank_pattern: \"v_proj\" matches no layer with an adapter",
        "alpha_pattern: \"layers.2.self_attn.q_proj\" matches no layer with"}},
      {"a_regular_expression_among_names",
       {{"use_peft", true}, {"lora_target_modules", {"q_proj", ".*v_proj", "all-linear"}}},
       2,
       {"lora_target_modules: \".*v_proj\" matches no layer of the model (a list contains names; give a regular "
        "expression as a single string)"}},
      {"no_such_layer",
       {{"use_peft", true}, {"lora_target_modules", "q_prj"}},
       2,
       {"\"q_prj\" matches no layer", "did you mean \"q_proj\"?"}},
      {"not_rows", {{"dataset_name", (kGoldens / "llama_gqa3_tied/config.json").string()}}, 3, {"config.json"}}};
}

INSTANTIATE_TEST_SUITE_P(All, WrongConfig, ::testing::ValuesIn(wrong_configs()),
                         [](const auto& info) { return info.param.name; });

class Errors : public RunOver {};

TEST_F(Errors, DataWithoutRowsIsNamed) {
  const Outcome outcome = run_over("[]");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr((folder_ / "rows.jsonl").string() + ": the data has no rows"));
}

TEST_F(Errors, TheThreadsAreToldOnce) {
  const Outcome outcome = run_over(R"({"input_ids": [5, 6, 7]})", {{"max_steps", 1}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string device = outcome.err.substr(outcome.err.find("device: "));
  const std::string line = device.substr(0, device.find('\n'));
  EXPECT_EQ(line.find("threads"), line.rfind("threads")) << line;
  EXPECT_THAT(line, HasSubstr(" 1 thread"));
}

// Uses a separate file system if this machine lets a test mount one.
TEST_F(Errors, ADiskTooSmallForTheResultIsToldBeforeTheFirstStep) {
  const std::string disk = (folder_ / "disk").string();
  fs::create_directory(disk);
  Json config = tiny_run(disk + "/out");
  write_file(folder_ / "run.json", dump_json(config, 2));
  const auto on_disk = [&](const std::string& command) {
    Process process({.argv = {"/usr/bin/unshare", "-rm", "/bin/sh", "-c",
                              "mount -t tmpfs -o size=16k none " + disk + " && " + command}});
    return process.wait();
  };
  if (!fs::exists("/usr/bin/unshare") || on_disk("true").code != 0) GTEST_SKIP() << "no file system can be mounted";
  const Outcome outcome = on_disk(std::string(QTRAIN_PROGRAM) + " " + (folder_ / "run.json").string());
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(disk + "/out: the result needs"), HasSubstr("MB are free")));
  EXPECT_EQ(outcome.err.find("step 1"), std::string::npos) << "nothing is trained";
}

TEST_F(Errors, ABrokenLineIsNamed) {
  const std::string good = R"({"input_ids": [5, 6, 7]})";
  const Outcome outcome = run_over(good + "\n" + good + "\n{\"input_ids\": [5, 6\n" + good + "\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("rows.jsonl:3"));
}

TEST_F(Errors, ARowOfTheWrongShapeIsNamed) {
  for (const char* row : {R"({"other": 1})", R"({"input_ids": "x"})", R"({"input_ids": [5], "labels": [5, 6]})",
                          R"({"input_ids": [5, 99999999999]})", R"({"messages": []})", "[1]"}) {
    const Outcome outcome = run_over(std::string(R"({"input_ids": [5, 6, 7]})") + "\n" + row + "\n");
    EXPECT_EQ(outcome.code, 3) << row << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("rows.jsonl:2")) << row;
  }
}

TEST_F(Errors, AnIdOutsideTheVocabularyIsFoundBeforeTraining) {
  const Outcome outcome = run_over("{\"input_ids\": [5, 64, 7]}\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("64"), HasSubstr("vocabulary")));
}

TEST_F(Errors, AnEmptyFileHasNoRows) {
  for (const char* lines : {"", "\n\n"}) EXPECT_EQ(run_over(lines).code, 3) << lines;
}

TEST_F(Errors, TextNeedsATokenizerAndChatATemplate) {
  Outcome outcome = run_over("{\"text\": \"a\"}\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("tokenizer.json"));
  write_untrained_model(folder_ / "model");
  fs::remove(folder_ / "model/chat_template.jinja");
  outcome = run_over("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n",
                     {{"model_name_or_path", (folder_ / "model").string()}});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("chat template"));
}

TEST_F(Errors, OnlyTrainingOfAllWeightsCanBeginWithoutThem) {
  write_untrained_model(folder_ / "model");
  const std::string row = "{\"input_ids\": [5, 6, 7]}\n";
  const Json model{{"model_name_or_path", (folder_ / "model").string()}, {"max_steps", 1}};
  for (const Json& kind : {Json{{"use_peft", true}}, Json{{"use_peft", true}, {"load_in_4bit", true}}}) {
    Json changes = model;
    changes.update(kind);
    const Outcome outcome = run_over(row, changes);
    EXPECT_EQ(outcome.code, 3) << kind << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the model has no weights"));
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("random_init"))) << "an adapter for random weights is useless";
    EXPECT_EQ(qtrain({.words = {"validate", (folder_ / "run.json").string()}}).code, 3) << kind;
    changes["random_init"] = true;
    for (const char* command : {"train", "validate", "estimate", "tune"}) {
      run_over(row, changes);
      const Outcome asked = qtrain({.words = {command, (folder_ / "run.json").string()}});
      EXPECT_EQ(asked.code, 2) << command << kind << asked.err;
      EXPECT_THAT(asked.err + asked.out, HasSubstr("random_init is for runs that train all weights")) << kind;
    }
  }
  fs::copy(folder_ / "model", folder_ / "whole");
  give_random_weights(folder_ / "whole");
  Json adapter = model;
  adapter.update({{"model_name_or_path", (folder_ / "whole").string()}, {"use_peft", true}});
  EXPECT_EQ(run_over(row, adapter).code, 0);
  adapter = model;
  fs::copy(folder_ / "out", folder_ / "adapter");
  adapter["adapter_name_or_path"] = (folder_ / "adapter").string();
  EXPECT_EQ(run_over(row, adapter).code, 3);
  adapter["random_init"] = true;
  EXPECT_EQ(run_over(row, adapter).code, 2);
  EXPECT_EQ(qtrain({.words = {"generate", "--model", (folder_ / "model").string(), "--prompt", "a"}}).code, 3);

  const Outcome full = run_over(row, model);
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_THAT(full.err, HasSubstr("has no weights: the model starts from random weights"));
  Json saved = model;
  saved.update({{"save_strategy", "steps"}, {"output_dir", (folder_ / "saved").string()}});
  EXPECT_EQ(run_over(row, saved).code, 0);
  saved["max_steps"] = 2;
  const Outcome resumed = run_over(row, saved);
  EXPECT_THAT(resumed.err, HasSubstr("resumed from"));
  EXPECT_THAT(resumed.err, ::testing::Not(HasSubstr("random weights"))) << "the weights come from the checkpoint";
  Json asked = model;
  asked["random_init"] = true;
  EXPECT_THAT(run_over(row, asked).err, ::testing::Not(HasSubstr("has no weights")));
}

// Missing paths, next to existing ones with similar names.
TEST_F(Errors, APathThatIsNotThereIsTakenForItsNeighbor) {
  const fs::path model = folder_ / "models/small", rows = folder_ / "rows.jsonl", out = folder_ / "finished";
  fs::create_directories(model.parent_path());
  write_untrained_model(model);
  write_file(rows, "{\"input_ids\": [5, 6, 7]}\n");
  Json config = tiny_lora_run(out);
  config.update({{"dataset_name", rows.string()}, {"max_steps", 1}, {"save_strategy", "steps"}, {"save_steps", 1}});
  train_ok(folder_.path(), config);
  const std::string run = (folder_ / "config.json").string(), wrong_model = (folder_ / "modles/small").string(),
                    wrong_out = (folder_ / "finishd").string(), wrong_rows = (folder_ / "rows.json").string();
  struct Wrong {
    std::vector<std::string> words;
    fs::path meant;
  };
  for (const Wrong& w :
       std::vector<Wrong>{{{(folder_ / "confg.json").string()}, run},
                          {{run, "model_name_or_path=" + wrong_model}, model},
                          {{run, "dataset_name=" + wrong_rows}, rows},
                          {{run, "adapter_name_or_path=" + wrong_out}, out},
                          {{"train", run, "--resume", (out / "checkpoint-11").string()}, out / "checkpoint-1"},
                          {{"validate", run, "model_name_or_path=" + wrong_model}, model},
                          {{"validate", run, "dataset_name=" + wrong_rows}, rows},
                          {{"estimate", run, "model_name_or_path=" + wrong_model}, model},
                          {{"eval", run, "eval_dataset_name=" + wrong_rows}, rows},
                          {{"generate", "--model", wrong_model, "--prompt", "a"}, model},
                          {{"quantize", "--model", wrong_model, "--output", (folder_ / "x").string()}, model},
                          {{"inspect", wrong_out}, out},
                          {{"report", wrong_out}, out},
                          {{"verify", wrong_out}, out},
                          {{"monitor", "--run", wrong_out}, out},
                          {{"clean", wrong_out}, out},
                          {{"datasets", wrong_rows}, rows}}) {
    const Outcome outcome = qtrain({.words = w.words});
    EXPECT_THAT(outcome.code, ::testing::AnyOf(2, 3)) << w.words[0] << outcome.err;
    EXPECT_THAT(outcome.err + outcome.out, HasSubstr("did you mean \"" + w.meant.string() + "\"?")) << w.words[0];
  }
  EXPECT_THAT(qtrain({.words = {"inspect", (folder_ / "elsewhere").string()}}).err,
              ::testing::Not(HasSubstr("did you mean")));
}

TEST_F(Errors, EveryCommandSaysWhatWasGivenAsAModel) {
  const auto make = [&](const char* folder, const char* file) {
    fs::create_directories(folder_ / folder);
    write_file(folder_ / folder / file, "x");
    return (folder_ / folder / file).string();
  };
  const std::string gguf = make("gguf", "m.gguf"), pickled = make("pickled", "pytorch_model.bin"),
                    adapter = fs::path(make("adapter", "adapter_config.json")).parent_path(),
                    out = (folder_ / "result").string(), rows = make("rows", "rows.jsonl");
  struct Given {
    std::string model, said;
  };
  const std::vector<Given> any{{gguf, "qtrain import " + gguf},
                               {"Qwen/Qwen3-0.6B", "models--Qwen--Qwen3-0.6B does not exist"},
                               {pickled, "pickled by PyTorch"},
                               {(folder_ / "pickled").string(), "pickled by PyTorch"},
                               {(folder_ / "gguf").string(), "qtrain import " + gguf}};
  std::vector<Given> models = any;
  models.push_back({adapter, "this is an adapter, not a model folder"});
  const auto try_all = [&](const std::vector<Given>& all, std::vector<std::string> words) {
    for (const Given& given : all) {
      std::vector<std::string> filled = words;
      std::replace(filled.begin(), filled.end(), std::string("MODEL"), given.model);
      const Outcome outcome = qtrain({.words = filled});
      EXPECT_EQ(outcome.code, 3) << words[0] << " " << given.model << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(given.said)) << words[0] << " " << given.model;
    }
  };
  try_all(models, {"generate", "--model", "MODEL", "--prompt", "a"});
  try_all(models, {"generate", "--model", "MODEL", "--prompt", "a", "--dtype", "float32"});
  try_all(models, {"chat", "--model", "MODEL"});
  try_all(models, {"quantize", "--model", "MODEL", "--output", out});
  try_all(models, {"merge", "--model", "MODEL", "--adapter", adapter, "--output", out});
  try_all(models, {"export", "--model", "MODEL", "--output", out});
  try_all(models, {"export", "--model", "MODEL", "--adapter", adapter, "--output", out});
  try_all(models, {"export", "--model", "MODEL", "--adapter", adapter, "--merge", "--output", out});
  try_all(any, {"tokenize", "--model", "MODEL"});
  try_all(any, {"render", "--model", "MODEL", "--input", rows});
  write_file(folder_ / "m.json", dump_json(tiny_run(folder_ / "out")));
  for (const Given& given : models)
    for (const char* command : {"train", "estimate"})
      try_all({given}, {command, (folder_ / "m.json").string(), "model_name_or_path=" + given.model});
  for (const std::string& path : {pickled, (folder_ / "pickled").string()})
    try_all({{path, "pickled by PyTorch"}}, {"inspect", "MODEL"});
  const Outcome config = qtrain({.words = {gguf}});
  EXPECT_EQ(config.code, 2);
  EXPECT_THAT(config.err, HasSubstr("qtrain import " + gguf));
  EXPECT_THAT(qtrain({.words = {"gguf"}, .folder = folder_.path()}).err,
              HasSubstr("gguf: this is a folder, not a config"));
  EXPECT_FALSE(fs::exists(out));
  const Outcome missing = qtrain({.words = {"generate", "--model", (kGoldens / "llama_gqa3_tied").string(), "--adapter",
                                            "owner/name", "--prompt", "a"}});
  EXPECT_THAT(missing.err, AllOf(HasSubstr("owner/name"), HasSubstr("HF_HUB_OFFLINE")));
}

TEST_F(Errors, AModelNamedByItsConfigFileHasTheWeightsBesideIt) {
  const std::string model = (kGoldens / "llama_gqa3_tied").string(), row = "{\"input_ids\": [5, 6, 7]}\n";
  const Json change{{"learning_rate", 0.0}, {"max_steps", 1}};
  Json by_file = change;
  by_file.update({{"model_name_or_path", model + "/config.json"}});
  ASSERT_EQ(run_over(row, by_file).code, 0);
  EXPECT_EQ(largest_difference(model, folder_ / "out"), 0);
}

TEST_F(Errors, AnExportToAFolderIsRefusedBeforeTheWork) {
  const std::string model = (kGoldens / "llama_gqa3_tied").string(), out = folder_.path().string();
  const Outcome outcome = qtrain({.words = {"export", "--model", model, "--output", out}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(out + ": is a folder"), HasSubstr("name of a file")));
}

TEST_F(Errors, WhatAnIncompleteDownloadLeavesIsNamed) {
  struct Case {
    std::string file, contents, said;
  };
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const std::string index = R"({"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}})";
  const std::vector<Case> cases{
      {"model.safetensors.index.json", index, "\"model-00002-of-00002.safetensors\" is missing"},
      {"model-00001-of-00002.safetensors", "",
       "only model-00001-of-00002.safetensors: its index, model.safetensors.index.json, is missing"},
      {"model.safetensors", pointer, "model.safetensors: is a git-lfs pointer"},
      {"model.safetensors.index.json", pointer, "is a git-lfs pointer"},
      {"model.safetensors.3f.incomplete", "", "model.safetensors.3f.incomplete: its download is not finished"},
      {".cache/huggingface/download/3f.incomplete", "", "3f.incomplete: its download is not finished"},
      {"pytorch_model.bin", "", "Python pickles"},
      {"model.Q8_0.gguf", "", "qtrain import"}};
  for (const Case& c : cases) {
    fs::remove_all(folder_ / "model");
    write_untrained_model(folder_ / "model");
    fs::create_directories((folder_ / "model" / c.file).parent_path());
    write_file(folder_ / "model" / c.file, c.contents);
    const Outcome outcome =
        run_over("{\"input_ids\": [5, 6, 7]}\n", {{"model_name_or_path", (folder_ / "model").string()}});
    EXPECT_EQ(outcome.code, 3) << c.file << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(c.said)) << c.file;
    const Outcome checked = qtrain({.words = {"validate", (folder_ / "run.json").string()}});
    EXPECT_EQ(checked.code, 3) << c.file;
    EXPECT_THAT(checked.out + checked.err, HasSubstr(c.said)) << c.file;
  }
}

TEST_F(Errors, DamagedWeightsAreRefused) {
  fs::create_directories(folder_ / "model");
  fs::copy_file(kGoldens / "llama_gqa3_tied/config.json", folder_ / "model/config.json");
  const std::string whole = bytes_of(kGoldens / "llama_gqa3_tied/model.safetensors");
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole.substr(0, 4), std::string()}) {
    write_file(folder_ / "model/model.safetensors", damaged);
    const Outcome outcome =
        run_over("{\"input_ids\": [5, 6, 7]}\n", {{"model_name_or_path", (folder_ / "model").string()}});
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("model.safetensors"));
  }
}

TEST_F(Errors, AModelThatCannotBeHonoredIsRefusedWithTheReason) {
  fs::create_directories(folder_ / "model");
  Json config = read_json(kGoldens / "llama_gqa3_tied/config.json");
  config["hidden_act"] = "gelu";
  write_file(folder_ / "model/config.json", dump_json(config));
  const Outcome outcome =
      run_over("{\"input_ids\": [5, 6, 7]}\n", {{"model_name_or_path", (folder_ / "model").string()}});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("hidden_act"));
}

TEST_F(Errors, AnOutputDirectoryInUseIsRefused) {
  fs::create_directories(folder_ / "out");
  const int fd = ::open((folder_ / "out/.lock").c_str(), O_CREAT | O_RDWR, 0644);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const std::string row = "{\"input_ids\": [5, 6, 7]}\n";
  const Outcome outcome = run_over(row);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("another run"));
  ::close(fd);
  EXPECT_EQ(run_over(row).code, 0);  // the lock file of a finished run does not count
}

TEST_F(Errors, ADirectoryThatCannotBeWrittenIsADiskError) {
  write_file(folder_ / "out", "a file");
  const Outcome outcome = run_over("{\"input_ids\": [5, 6, 7]}\n");
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("/out: "), HasSubstr("irectory: "), HasSubstr("output_dir")));
}

TEST_F(Errors, ADeviceThatIsNotThere) {
  if (cuda_problem().empty()) GTEST_SKIP() << "there is one";
  const Outcome outcome = run_over("{\"input_ids\": [7, 8, 9]}\n", {{"device", "cuda"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("device cuda: " + cuda_problem()), HasSubstr("cpu")));
}

}  // namespace
}  // namespace qtrain::e2e
