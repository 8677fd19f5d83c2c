#include <cmath>
#include <csignal>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Evaluates the batch of a golden case (tests/golden/README.md).
class Eval : public ::testing::Test {
 protected:
  Json config(const std::string& name) {
    const Json batch = read_json(kGoldens / name / "batch.json");
    write_file(folder_ / "rows.jsonl", jsonl(batch.at("rows").get<std::vector<Json>>()));
    return {{"model_name_or_path", (kGoldens / name).string()},
            {"eval_dataset_name", (folder_ / "rows.jsonl").string()},
            {"output_dir", (folder_ / "out").string()},
            {"dtype", "auto"},
            {"bf16", false},
            {"max_length", nullptr},
            {"threads", 1}};
  }
  Json evaluated(const Json& config, const std::vector<std::string>& more = {}) {
    write_file(folder_ / "config.json", dump_json(config));
    std::vector<std::string> words{"eval", (folder_ / "config.json").string(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_json(qtrain_ok({.words = words}).out, "stdout");
  }
  TempFolder folder_;
};

TEST_F(Eval, IsTheLossOfTransformers) {
  for (const char* name : {"llama_gqa3_tied", "mistral_window", "qwen3_hd8", "qwen2_full", "rope_yarn"}) {
    const Json result = evaluated(config(name)), expected = read_json(kGoldens / name / "expected.json");
    EXPECT_THAT(keys_of(result), ElementsAre("measured", "model", "adapter", "eval_loss", "perplexity", "tokens",
                                             "target_tokens", "rows"))
        << name;
    // Compares float32 with float64: a few times the error of transformers itself.
    const double spread = expected.at("spread").at("loss_mean").at("f32");
    EXPECT_NEAR(result.at("eval_loss"), expected.at("loss_mean"), 4 * spread + 1e-6) << name;
    EXPECT_EQ(result.at("target_tokens"), expected.at("count")) << name;
    EXPECT_DOUBLE_EQ(result.at("perplexity"), std::exp(result.at("eval_loss").get<double>()));
    const auto rows = read_jsonl(folder_ / "rows.jsonl");
    EXPECT_EQ(result.at("rows"), rows.size());
    std::size_t tokens = 0;
    for (const Json& row : rows) tokens += row["input_ids"].size();
    EXPECT_EQ(result.at("tokens"), tokens);
  }
}

TEST_F(Eval, CountsTheAdapter) {
  Json c = config("lora_llama_all");
  const Json expected = read_json(kGoldens / "lora_llama_all/expected.json");
  const double without = evaluated(c)["eval_loss"], loss = expected.at("loss_mean");
  const std::string adapter = (kGoldens / "lora_llama_all/adapter").string();
  EXPECT_NEAR(evaluated(c, {"--adapter", adapter})["eval_loss"], loss, 5e-6);
  c["adapter_name_or_path"] = adapter;
  EXPECT_NEAR(evaluated(c)["eval_loss"], loss, 5e-6);
  EXPECT_GT(std::abs(without - loss), 1e-3);
}

/// A config that trains an adapter or all weights, and evaluates on its training rows.
class EvalOfARun : public Eval {
 protected:
  Json run(const Json& changes = Json::object()) const {
    Json c = tiny_run(folder_ / "out");
    c.update({{"eval_dataset_name", c["dataset_name"]},
              {"eval_strategy", "epoch"},
              {"save_strategy", "steps"},
              {"save_steps", 2}});
    c.update(changes);
    return c;
  }
  Json lora(Json changes = Json::object()) const {
    changes.update({{"use_peft", true}, {"lora_r", 4}});
    return run(changes);
  }
  Outcome eval_of(const Json& config, const std::vector<std::string>& more = {}) const {
    write_file(folder_ / "config.json", dump_json(config));
    std::vector<std::string> words{"eval", (folder_ / "config.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain_ok({.words = words});
  }
  double last_eval_loss() const { return history(folder_ / "out", "eval_loss").back().at("eval_loss"); }
};

TEST_F(EvalOfARun, MeasuresWhatWasTrained) {
  for (const Json& c : {lora(), run()}) {
    fs::remove_all(folder_ / "out");
    const Json before = evaluated(c);
    EXPECT_EQ(before.at("measured"), "start");
    train_ok(folder_.path(), c);
    const Json result = evaluated(c);
    EXPECT_EQ(result.at("measured"), "result");
    // Adapters are saved as trained, weights in float32.
    EXPECT_NEAR(result.at("eval_loss"), last_eval_loss(), 1e-9);
    EXPECT_GT(before.at("eval_loss").get<double>() - result.at("eval_loss").get<double>(), 0.01);
    const Json base = evaluated(c, {"--base"});
    EXPECT_EQ(base, before);
    const bool adapts = c.contains("use_peft");
    EXPECT_EQ(result.at("model"), adapts ? c["model_name_or_path"] : c["output_dir"]);
    EXPECT_EQ(result.at("adapter"), adapts ? c["output_dir"] : Json());
  }
}

TEST_F(EvalOfARun, SaysWhatItMeasuresFirstAndTheResultOnStdout) {
  const Json c = lora();
  train_ok(folder_.path(), c);
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--quiet"}}) {
    const Outcome outcome = eval_of(c, more);
    EXPECT_THAT(outcome.out, ::testing::StartsWith("measured: the adapter in " + (folder_ / "out").string() +
                                                   ", the result of this config, on "));
    EXPECT_THAT(outcome.out, HasSubstr("\neval_loss "));
    EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("measured:"))) << "once is enough on a terminal";
  }
  EXPECT_THAT(eval_of(c, {"--json"}).err, ::testing::StartsWith("measured: the adapter in "));
  EXPECT_THAT(eval_of(c, {"--base"}).out, HasSubstr("llama_gqa3_tied, the model that the config starts from\n"));
}

TEST_F(EvalOfARun, WithoutAResultTakesTheNewestWholeCheckpoint) {
  for (const Json& c : {lora(), run()}) {
    fs::remove_all(folder_ / "out");
    train_ok(folder_.path(), c);
    const bool adapts = c.contains("use_peft");
    const char* weights = adapts ? "adapter_model.safetensors" : "model.safetensors";
    for (const char* file : {weights, "adapter_config.json", "config.json"}) fs::remove(folder_ / "out" / file);
    const Json newest = evaluated(c);
    EXPECT_EQ(newest.at("measured"), "checkpoint");
    EXPECT_NEAR(newest.at("eval_loss"), last_eval_loss(), 1e-9);
    fs::resize_file(folder_ / "out/checkpoint-8" / weights, 100);
    const Outcome passed = eval_of(c);
    EXPECT_THAT(passed.err, HasSubstr("checkpoint-8 is not measured: "));
    EXPECT_THAT(passed.out, HasSubstr("checkpoint-6"));
  }
}

TEST_F(EvalOfARun, WhatAnotherConfigTrainedIsNotTakenForItsResult) {
  train_ok(folder_.path(), lora());
  struct Case {
    Json config;
    std::string said;
  };
  for (const Case& c :
       {Case{lora({{"use_rslora", true}}), "use_rslora is false there but true in the config"},
        Case{run(), "it is an adapter, but the config trains all weights"},
        Case{lora({{"model_name_or_path", (kGoldens / "rope_yarn").string()}}), "it was trained from"}}) {
    const Outcome outcome = eval_of(c.config, {"--json"});
    EXPECT_EQ(parse_json(outcome.out, "stdout")["measured"], "start") << c.said;
    EXPECT_THAT(outcome.err, HasSubstr(c.said));
  }
}

// A finished run of 8 steps is continued, and stopped after a checkpoint.
TEST_F(EvalOfARun, ACheckpointThatIsNewerThanTheResultIsMeasured) {
  const fs::path out = folder_ / "out";
  train_ok(folder_.path(), lora());
  const Json result = evaluated(lora()), longer = lora({{"max_steps", 100000}});
  write_file(folder_ / "run.json", dump_json(longer));
  Process process(launch_of({.words = {"train", (folder_ / "run.json").string()}}));
  ASSERT_TRUE(process.waits_for("step 12/"));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().code, 75);
  const Json newer = evaluated(longer);
  EXPECT_EQ(newer.at("measured"), "checkpoint");
  EXPECT_NE(newer.at("eval_loss"), result.at("eval_loss"));
  const Outcome told = eval_of(longer);
  EXPECT_THAT(told.out, HasSubstr("the newest checkpoint: the result in " + out.string() + " is older"));
  // A checkpoint that is no newer than the result is not used.
  for (const auto& entry : fs::directory_iterator(out))
    if (entry.path().filename().string().starts_with("checkpoint-") && entry.path().filename() != "checkpoint-8")
      fs::remove_all(entry.path());
  EXPECT_EQ(evaluated(longer), result);
}

TEST_F(EvalOfARun, AResultThatANewRunHasFollowedIsNotMeasured) {
  const fs::path out = folder_ / "out", manifest = out / "manifest.json";
  train_ok(folder_.path(), lora());
  write_file(folder_ / "run.json", dump_json(lora({{"max_steps", 100000}, {"save_strategy", "no"}})));
  Process process(launch_of({.words = {"train", (folder_ / "run.json").string(), "--resume", "never"}}));
  ASSERT_TRUE(process.waits_for("step 2/"));
  EXPECT_FALSE(fs::exists(manifest));
  process.signal(SIGKILL);
  process.wait();
  EXPECT_EQ(evaluated(lora()).at("measured"), "start");
  const Outcome told = eval_of(lora());
  EXPECT_THAT(told.err, HasSubstr("out is not measured: it has no manifest.json: it is from an earlier run"));
}

TEST_F(EvalOfARun, AResultThatIsNotWholeIsNotMeasured) {
  train_ok(folder_.path(), run());
  fs::resize_file(folder_ / "out/model.safetensors", fs::file_size(folder_ / "out/model.safetensors") - 4);
  const Outcome told = eval_of(run());
  EXPECT_THAT(told.err, HasSubstr("out is not measured: "));
  EXPECT_THAT(told.out,
              HasSubstr("checkpoint-8, the newest checkpoint: " + (folder_ / "out").string() + " is not measured"));
}

TEST_F(EvalOfARun, AResultOfOtherSettingsIsMeasuredAndCalledSo) {
  train_ok(folder_.path(), lora({{"seed", 7}}));
  write_file(folder_ / "rows.jsonl", bytes_of(lora()["dataset_name"].get<std::string>()));
  const Json other = lora({{"dataset_name", (folder_ / "rows.jsonl").string()}, {"learning_rate", 0.5}});
  const Json result = evaluated(other);
  EXPECT_EQ(result.at("measured"), "result");
  EXPECT_EQ(result.at("other_settings").size(), 3u) << result;
  train_ok(folder_.path(), lora({{"seed", 7}, {"learning_rate", 0.5}}));  // already finished: trains nothing more
  const Outcome told = eval_of(other);
  EXPECT_THAT(told.out, HasSubstr("the result of a config with other settings"));
  EXPECT_THAT(told.err, HasSubstr("seed = 7, the config says 42"));
  EXPECT_THAT(told.err, HasSubstr("dataset_name = "));
  EXPECT_THAT(told.err, HasSubstr("learning_rate = "));
  // A different spelling of the same setting is not a difference.
  Json same = lora({{"seed", 7}, {"logging_steps", 3}, {"compute_dtype", "float32"}, {"optim", "adamw_torch"}});
  EXPECT_FALSE(evaluated(same).contains("other_settings"));
}

TEST_F(EvalOfARun, RelativeNamesAreThoseOfTheFolderThatItRanIn) {
  const fs::path project = folder_ / "project", elsewhere = folder_ / "elsewhere";
  for (const fs::path& made : {project, elsewhere}) fs::create_directory(made);
  fs::copy(kGoldens / "llama_gqa3_tied", project / "base");
  Json c = lora();
  fs::copy_file(c["dataset_name"].get<std::string>(), project / "rows.jsonl");
  c.update({{"model_name_or_path", "base"}, {"dataset_name", "rows.jsonl"}, {"eval_dataset_name", "rows.jsonl"}});
  write_file(project / "run.json", dump_json(c));
  qtrain_ok({.words = {"run.json"}, .folder = project});
  for (const char* key : {"model_name_or_path", "dataset_name", "eval_dataset_name"})
    c[key] = "../project/" + c[key].get<std::string>();
  write_file(elsewhere / "run.json", dump_json(c));
  const Outcome told = qtrain_ok({.words = {"eval", "run.json"}, .folder = elsewhere});
  EXPECT_THAT(told.out, HasSubstr("the result of this config")) << told.err;
  // The whole project is renamed.
  fs::rename(project, folder_ / "moved");
  const Outcome moved = qtrain_ok({.words = {"eval", "run.json"}, .folder = folder_ / "moved"});
  EXPECT_THAT(moved.out, HasSubstr("the result of this config")) << moved.err;
}

TEST_F(Eval, DoesNotDependOnTheBatchSize) {
  Json c = config("llama_gqa3_tied");
  const double loss = evaluated(c)["eval_loss"];
  for (const int size : {1, 2, 3}) {
    c["per_device_eval_batch_size"] = size;
    // float32 sums in a different order.
    EXPECT_NEAR(evaluated(c)["eval_loss"], loss, 1e-6) << size;
  }
}

TEST_F(Eval, AgreesWithTheEvaluationOfTheRun) {
  Json c = tiny_run(folder_ / "out");
  c.update({{"eval_dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()}, {"eval_strategy", "epoch"}});
  train_ok(folder_.path(), c);
  const auto rows = history(folder_ / "out", "eval_loss");
  ASSERT_EQ(rows.size(), 2u);  // after 6 of 8 steps, and at the end
  c["model_name_or_path"] = (folder_ / "out").string();
  EXPECT_NEAR(evaluated(c)["eval_loss"], rows.back().at("eval_loss"), 1e-9);
}

TEST_F(Eval, ASplitHoldsRowsOutOfTraining) {
  Json c = tiny_run(folder_ / "out");
  c.update({{"eval_split", 0.25}, {"eval_strategy", "epoch"}, {"learning_rate", 0.0}, {"max_steps", 1}});
  train_ok(folder_.path(), c);
  const Json result = evaluated(c);
  EXPECT_EQ(result.at("rows"), 6);  // ceil(21 / 4)
  EXPECT_NEAR(result.at("eval_loss"), history(folder_ / "out", "eval_loss").back().at("eval_loss"), 1e-9);
}

TEST_F(Eval, LimitTakesTheFirstRows) {
  const Json c = config("llama_gqa3_tied");
  EXPECT_EQ(evaluated(c, {"--limit", "1"})["rows"], 1);
}

TEST_F(Eval, GeneratesAnswersAndCountsTheExactOnes) {
  write_untrained_model(folder_ / "model");
  std::vector<Json> rows;
  for (const char* city : {"Paris", "Rome", "Oslo"})
    rows.push_back({{"messages", Json::array({{{"role", "user"}, {"content", std::string("say ") + city}},
                                              {{"role", "assistant"}, {"content", city}}})}});
  write_file(folder_ / "train.jsonl", jsonl(rows));
  rows.push_back({{"messages", Json::array({{{"role", "user"}, {"content", "say Paris"}},
                                            {{"role", "assistant"}, {"content", "Berlin"}}})}});
  write_file(folder_ / "eval.jsonl", jsonl(rows));
  Json c{{"model_name_or_path", (folder_ / "model").string()},
         {"dataset_name", (folder_ / "train.jsonl").string()},
         {"eval_dataset_name", (folder_ / "eval.jsonl").string()},
         {"output_dir", (folder_ / "out").string()},
         {"assistant_only_loss", true},
         {"max_steps", 60},
         {"learning_rate", 0.01},
         {"bf16", false},
         {"threads", 1},
         {"save_strategy", "no"}};
  train_ok(folder_.path(), c);
  c["model_name_or_path"] = (folder_ / "out").string();
  const fs::path answers = folder_ / "answers.jsonl";
  const Json result = evaluated(c, {"--generate", "--rows", answers.string(), "--max_new_tokens", "16"});
  EXPECT_EQ(result.at("exact_match"), 0.75);
  const auto written = read_jsonl(answers);
  ASSERT_EQ(written.size(), 4u);
  EXPECT_EQ(written[1]["completion"], "Rome");
  EXPECT_EQ(written[1]["reference"], "Rome");
  EXPECT_EQ(written[3]["exact_match"], false);
  EXPECT_EQ(written[3]["completion"], "Paris");
  EXPECT_EQ(written[0]["finish_reason"], "stop");
}

TEST_F(Eval, WithoutRowsToEvaluateIsAUsageError) {
  Json c = config("llama_gqa3_tied");
  c.erase("eval_dataset_name");
  write_file(folder_ / "config.json", dump_json(c));
  const Outcome outcome = qtrain({.words = {"eval", (folder_ / "config.json").string()}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("eval_dataset_name"));
}

}  // namespace
}  // namespace qtrain::e2e
