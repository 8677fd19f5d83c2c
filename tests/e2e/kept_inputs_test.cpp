// No output takes the place of what a command reads, whatever option names it and however it is reached.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "core/os/file.h"
#include "tests/e2e/started_ranks.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class KeptInputs : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void SetUp() override {
    write_untrained_model(at("model"));
    write_file(at("rows.jsonl"), jsonl({{{"prompt", "a question"}, {"completion", "an answer"}}}));
    write_file(at("config.json"), dump_json(config()));
  }
  Json config() const {
    Json run = tiny_run(at("out"));
    run.update({{"model_name_or_path", at("model")},
                {"dataset_name", at("rows.jsonl")},
                {"random_init", true},
                {"max_length", 32},
                {"max_steps", 1}});
    return run;
  }
  /// Puts a file into the output directory.
  fs::path put(const std::string& name, const std::string& contents) const {
    const fs::path file = folder_ / "out" / name;
    fs::create_directories(file.parent_path());
    write_file(file, contents);
    return file;
  }
  /// Expects that a command with these words is refused and that the file stays.
  void expect_kept(const fs::path& input, const std::vector<std::string>& words, const std::string& says) const {
    SCOPED_TRACE(fmt::format("{} {}", words[0], input.string()));
    const std::string before = bytes_of(input);
    const Outcome refused = qtrain({.words = words});
    EXPECT_EQ(refused.code, 2) << refused.out << refused.err;
    EXPECT_THAT(refused.out + refused.err, HasSubstr(says));
    ASSERT_TRUE(fs::exists(input));
    EXPECT_EQ(bytes_of(input), before);
  }
  TempFolder folder_;
};

TEST_F(KeptInputs, OfARunAreAllThatItsConfigNames) {
  const std::string rows = bytes_of(at("rows.jsonl")), prompts = jsonl({{{"prompt", "a question"}}});
  const struct {
    std::string place, contents, key;
  } cases[] = {{"config.json", R"({"zero_optimization": {"stage": 0}})", "deepspeed"},
               {"config.json", "{\"distributed_type\": \"NO\"}", "accelerate_config"},
               {"samples.jsonl", prompts, "sample_prompts"},
               {"metrics.jsonl", rows, "dataset_name"},
               {"messages.jsonl", rows, "eval_dataset_name"},
               {"checkpoint-5.tmp/rows.jsonl", rows, "dataset_name"},
               {".final.tmp/rows.jsonl", rows, "eval_dataset_name"},
               {"checkpoint-1/prompts.jsonl", prompts, "sample_prompts"},
               {"additional_chat_templates/rag.jinja", "{{ messages }}", "chat_template_path"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.key + " in " + c.place);
    const fs::path input = put(c.place, c.contents);
    for (const char* command : {"train", "validate"}) {
      std::vector<std::string> words{command, at("config.json"), c.key + "=" + input.string()};
      if (command == std::string("train")) words.emplace_back("--overwrite");
      expect_kept(input, words, "is an input of the run");
    }
    fs::remove_all(at("out"));
  }
}

// A checkpoint of the output directory is set aside or replaced.
TEST_F(KeptInputs, OfARunAreItsOwnCheckpoints) {
  Json first = config();
  first.update({{"save_strategy", "steps"}, {"save_steps", 1}});
  train_ok(folder_.path(), first);
  for (const char* resume : {"auto", "never"})
    expect_kept(at("out/checkpoint-1/model.safetensors"),
                {"train", at("config.json"), "model_name_or_path=" + at("out/checkpoint-1"), "random_init=false",
                 "--resume", resume, "--overwrite"},
                "is an input of the run");
}

TEST_F(KeptInputs, AreNotAppendedToThroughAnotherName) {
  fs::create_hard_link(at("rows.jsonl"), at("events.jsonl"));
  expect_kept(at("rows.jsonl"), {"train", at("config.json"), "--events", at("events.jsonl")},
              "the output is an input of the command");
}

TEST_F(KeptInputs, OfBenchmarksAndMonitorsAreTheirs) {
  train_ok(folder_.path(), config());
  expect_kept(at("config.json"), {"bench", "step", at("config.json"), "--json", at("config.json"), "--overwrite"},
              "the output is an input of the command");
  expect_kept(at("out/metrics.jsonl"),
              {"monitor", "--run", at("out"), "--duration", "0.2", "--interval", "0.1", "--json",
               at("out/metrics.jsonl"), "--overwrite"},
              "the output is an input of the command");
  write_file(at("mine.json"), R"({"mine": 1})");
  const std::vector<std::string> measure{"bench", "step", at("config.json"), "--json", at("mine.json")};
  expect_kept(at("mine.json"), measure, "was not written by qtrain bench");
  fs::remove(at("mine.json"));
  qtrain_ok({.words = measure});
  qtrain_ok({.words = measure});
}

TEST_F(KeptInputs, OfGeneratedAnswersAreAllFilesOfAPattern) {
  train_ok(folder_.path(), config());
  for (const std::string input : {"rows.jsonl", "*.jsonl"})
    expect_kept(at("rows.jsonl"),
                {"generate", "--model", at("out"), "--input", at(input), "--max_new_tokens", "1", "--output",
                 at("rows.jsonl"), "--overwrite"},
                "the output is an input of the command");
}

class KeptInputsOfRanks : public StartedRanks {};

// Another launcher has not checked what its ranks are started with.
TEST_F(KeptInputsOfRanks, StayWhoeverStartsTheRanks) {
  Json config = tiny_run(at("out"));
  config.update({{"max_steps", 1}, {"device", "cpu"}, {"dataset_name", at("out/metrics.jsonl").string()}});
  fs::create_directories(at("out"));
  fs::copy_file(kGoldens / "curves/cosine/data.jsonl", at("out/metrics.jsonl"));
  const std::string before = bytes_of(at("out/metrics.jsonl"));
  std::vector<std::unique_ptr<Process>> ranks;
  for (int r = 0; r < 2; ++r) {
    Launch launch = rank(r, 2, config);
    launch.argv.emplace_back("--overwrite");
    ranks.push_back(std::make_unique<Process>(launch));
  }
  for (const auto& rank : ranks) {
    const Outcome refused = rank->wait();
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("is an input of the run"));
  }
  EXPECT_EQ(bytes_of(at("out/metrics.jsonl")), before);
}

// An export that takes long enough for another program to write a file of its name.
TEST_F(KeptInputs, AFileThatWasMadeWhileAnExportRanStays) {
  train_ok(folder_.path(), config());
  const auto names_of_folder = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    return names;
  };
  const std::string mine = "mine\n";
  for (int tries = 0; tries < 50; ++tries) {
    fs::remove(at("model.gguf"));
    fs::remove(at("model.gguf.2"));
    Process exporting(launch_of({.words = {"export", "--model", at("out"), "--output", at("model.gguf")}}));
    const auto has_begun = [&] {
      return std::ranges::any_of(names_of_folder(), [](const std::string& n) { return n.starts_with(".model.gguf."); });
    };
    while (exporting.running() && !has_begun()) std::this_thread::yield();
    const bool first = !fs::exists(at("model.gguf"));
    if (first) write_file(at("model.gguf"), mine);
    const Outcome o = exporting.wait();
    ASSERT_EQ(o.code, 0) << o.err;
    if (!first || !fs::exists(at("model.gguf.2"))) continue;  // it had been faster
    EXPECT_EQ(bytes_of(at("model.gguf")), mine);
    EXPECT_THAT(o.err, HasSubstr("writing the result to " + at("model.gguf.2")));
    EXPECT_THAT(o.out, HasSubstr("to " + at("model.gguf.2")));
    return;
  }
  GTEST_SKIP() << "the export was always done before the file was written";
}

}  // namespace
}  // namespace qtrain::e2e
