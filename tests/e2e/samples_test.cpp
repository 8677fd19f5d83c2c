#include <signal.h>

#include <numeric>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A run with evaluations on the letters of a tiny model.
class Samples : public ::testing::Test {
 protected:
  Samples() {
    fs::copy(kGoldens / "llama_gqa3_tied", folder_ / "model");
    const int vocabulary = read_json(folder_ / "model/config.json").at("vocab_size").get<int>();
    write_letter_tokenizer(folder_ / "model", vocabulary);
    prompts_ = {letters({5, 6, 7}), letters({9})};
  }
  Json config(const std::string& output) const {
    Json config = tiny_run(folder_ / output);
    config.update({{"model_name_or_path", (folder_ / "model").string()},
                   {"eval_dataset_name", config["dataset_name"]},
                   {"eval_strategy", "steps"},
                   {"eval_steps", 4},
                   {"sample_prompts", prompts_},
                   {"sample_max_new_tokens", 5}});
    return config;
  }
  static std::vector<Json> without_times(const fs::path& file) {
    std::vector<Json> rows = read_jsonl(file);
    for (Json& row : rows) row.erase("time");
    return rows;
  }

  TempFolder folder_;
  std::vector<std::string> prompts_;
};

TEST_F(Samples, AreAnsweredAtEachEvaluationAndChangeNoBit) {
  train_ok(folder_.path(), config("with"));
  train_ok(folder_.path(), config("without"), {"sample_prompts=[]", "sample_max_new_tokens=64"});
  const std::vector<Json> rows = read_jsonl(folder_ / "with/samples.jsonl");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["step"], 4);
  EXPECT_EQ(rows[3]["step"], 8);
  EXPECT_EQ(rows[1]["prompt"], prompts_[1]);
  EXPECT_LE(rows[1]["tokens"], 5);
  EXPECT_EQ(bytes_of(folder_ / "with/model.safetensors"), bytes_of(folder_ / "without/model.safetensors"));
  EXPECT_EQ(history_without_times(folder_ / "with"), history_without_times(folder_ / "without"));
  EXPECT_FALSE(fs::exists(folder_ / "without/samples.jsonl"));
  EXPECT_THAT(bytes_of(folder_ / "with/report.html"), HasSubstr(prompts_[0]));
  const Outcome answer = qtrain_ok({.words = {"generate", "--model", (folder_ / "with").string(), "--raw", "--greedy",
                                              "--prompt", prompts_[0], "--max_new_tokens", "5", "--dtype", "float32"}});
  EXPECT_THAT(answer.out, HasSubstr(rows[2]["completion"].get<std::string>())) << "what the final model answers";
}

TEST_F(Samples, AreOfTokensOfTheTokenizer) {
  write_letter_tokenizer(folder_ / "model", 12);
  train_ok(folder_.path(), config("out"));
  for (const Json& row : read_jsonl(folder_ / "out/samples.jsonl"))
    EXPECT_EQ(row["completion"].get<std::string>().size(), 2 * row["tokens"].get<std::size_t>()) << row;
}

TEST_F(Samples, HaveMemoryInThePlan) {
  train_ok(folder_.path(), config("out"));
  const Json memory = read_json(folder_ / "out/train_results.json").at("memory");
  EXPECT_GT(memory["planned"]["samples"], 0);
  EXPECT_EQ(memory["allocated"], memory["planned"]["total"]);
  const Json estimate =
      Json::parse(qtrain_ok({.words = {"estimate", (folder_ / "config.json").string(), "--json"}}).out);
  EXPECT_EQ(estimate["memory"]["total"], memory["planned"]["total"]);
}

TEST_F(Samples, GoOnWithAResumedRun) {
  Json saved = config("out");
  saved.update({{"save_strategy", "steps"}, {"save_steps", 4}});
  train_ok(folder_.path(), saved);
  const std::vector<Json> whole = without_times(folder_ / "out/samples.jsonl");
  fs::remove_all(folder_ / "out/checkpoint-8");
  fs::remove(folder_ / "out/manifest.json");
  train_ok(folder_.path(), saved);
  EXPECT_EQ(without_times(folder_ / "out/samples.jsonl"), whole);
}

/// The runs on a page, whose data is one JSON document.
Json data_of(const fs::path& page) {
  const std::string text = bytes_of(page), begin = R"(<script type="application/json" id="data">)";
  const std::size_t at = text.find(begin) + begin.size();
  return Json::parse(text.substr(at, text.find("</script>", at) - at)).at("runs");
}

// The stop comes at any moment, most likely during an evaluation or its samples.
TEST_F(Samples, OfARunThatWasStoppedAndGoesOnAreThereOnce) {
  constexpr int kSteps = 30;
  const Json often{{"max_steps", kSteps}, {"eval_steps", 1}, {"save_strategy", "no"}};
  Json whole = config("whole"), parts = config("parts");
  whole.update(often);
  parts.update(often);
  train_ok(folder_.path(), whole);
  write_file(folder_ / "parts.json", dump_json(parts));
  Process first(launch_of({.words = {(folder_ / "parts.json").string()}}));
  ASSERT_TRUE(first.waits_for("step 3: answered 2 prompts")) << first.said();
  first.signal(SIGTERM);
  ASSERT_EQ(first.wait().code, 75);
  const std::vector<Json> of_first = without_times(folder_ / "parts/samples.jsonl");
  ASSERT_LT(of_first.size(), 2u * kSteps) << "the run should have been stopped before its end";
  train_ok(folder_.path(), parts);

  const std::vector<Json> all = without_times(folder_ / "whole/samples.jsonl");
  ASSERT_EQ(all.size(), 2u * kSteps);
  EXPECT_EQ(without_times(folder_ / "parts/samples.jsonl"), all);
  EXPECT_EQ(data_of(folder_ / "parts/report.html")[0]["samples"], data_of(folder_ / "whole/report.html")[0]["samples"]);
  std::vector<int> evaluated, steps(kSteps);
  for (const Json& row : read_jsonl(folder_ / "parts/metrics.jsonl"))
    if (row.contains("eval_loss")) evaluated.push_back(row.at("step"));
  std::iota(steps.begin(), steps.end(), 1);
  EXPECT_EQ(evaluated, steps);
  EXPECT_EQ(history_without_times(folder_ / "parts"), history_without_times(folder_ / "whole"));
}

TEST_F(Samples, OfSeveralRanksAreThoseOfOne) {
  train_ok(folder_.path(), config("one"));
  Json two = config("two");
  two.update({{"nproc", 2}, {"per_device_train_batch_size", 1}, {"zero_stage", 2}, {"deterministic_reduce", true}});
  train_ok(folder_.path(), two);
  EXPECT_EQ(read_jsonl(folder_ / "two/samples.jsonl").size(), 4u);
}

TEST_F(Samples, ComeFromFiles) {
  write_file(folder_ / "prompts.txt", prompts_[0] + "\n\n" + prompts_[1] + "\n");
  write_file(folder_ / "prompts.jsonl", Json{{"prompt", prompts_[0]}}.dump() + "\n");
  Json from_files = config("out");
  from_files["sample_prompts"] = {(folder_ / "prompts.txt").string(), (folder_ / "prompts.jsonl").string()};
  from_files["max_steps"] = 4;
  train_ok(folder_.path(), from_files);
  std::vector<std::string> asked;
  for (const Json& row : read_jsonl(folder_ / "out/samples.jsonl")) asked.push_back(row["prompt"]);
  EXPECT_THAT(asked, ElementsAre(prompts_[0], prompts_[1], prompts_[0]));
  from_files["sample_prompts"] = (folder_ / "missing.jsonl").string();
  write_file(folder_ / "config.json", dump_json(from_files));
  const Outcome missing = qtrain({.words = {(folder_ / "config.json").string()}});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("missing.jsonl: sample_prompts names a file that does not exist"));
}

TEST_F(Samples, ATextThatEndsLikeAFileIsAPrompt) {
  Json worded = config("out");
  const std::string prompt = letters({5}) + " " + letters({6}) + ".txt";
  worded.update({{"sample_prompts", {prompt}}, {"max_steps", 4}});
  train_ok(folder_.path(), worded);
  EXPECT_EQ(read_jsonl(folder_ / "out/samples.jsonl").at(0)["prompt"], prompt);
}

TEST_F(Samples, NeedWholeWeights) {
  write_file(folder_ / "config.json", dump_json(config("out")));
  const Outcome refused = qtrain(
      {.words = {(folder_ / "config.json").string(), "nproc=2", "zero_stage=3", "per_device_train_batch_size=1"}});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("sample_prompts needs unsharded weights"));
}

}  // namespace
}  // namespace qtrain::e2e
