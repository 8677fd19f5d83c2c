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

/// A finished run and its model, parts of which are mounted under other names. Skipped where nothing can be mounted.
class Mounts : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void SetUp() override {
    if (!fs::exists("/usr/bin/unshare") || mounted(at("."), at("."), {"true"}).code != 0)
      GTEST_SKIP() << "nothing can be mounted";
    write_untrained_model(at("model"));
    give_random_weights(at("model"));
    write_file(at("prompts.jsonl"), jsonl({{{"prompt", "a"}}}));
    Json run = tiny_run(at("out"));
    run.update({{"save_strategy", "steps"}, {"save_steps", 2}, {"max_steps", 4}});
    train_ok(folder_.path(), run);
    fs::create_directories(at("mount"));
  }
  /// Runs a command while `from` is mounted at `to`.
  static Outcome mounted(const std::string& from, const std::string& to, const std::vector<std::string>& command) {
    Launch launch = launch_of({.words = {}});
    launch.argv = {
        "/usr/bin/unshare", "-rm", "/bin/sh", "-c", R"(mount --bind "$0" "$1" && shift && exec "$@")", from, to};
    launch.argv.insert(launch.argv.end(), command.begin(), command.end());
    return Process(launch).wait();
  }
  Outcome mounted_qtrain(const std::string& from, const std::string& to, std::vector<std::string> words) const {
    words.insert(words.begin(), program());
    return mounted(from, to, words);
  }
  std::vector<std::string> generate(const std::string& output) const {
    return {"generate",         "--model", at("model"), "--input", at("prompts.jsonl"), "--raw",
            "--max_new_tokens", "2",       "--output",  output,    "--overwrite"};
  }
  TempFolder folder_;
};

TEST_F(Mounts, OfCheckpointsAndCopiesOfThemStayWhole) {
  fs::copy(at("out/checkpoint-2"), at("out/best"), fs::copy_options::recursive);
  const std::string all_there = "all files match";
  for (const char* name : {"rows.json", "more.safetensors", "trainer_state.json", "model.safetensors"}) {
    const Outcome by_mount = mounted_qtrain(at("out/checkpoint-2"), at("mount"), generate(at("mount/") + name));
    EXPECT_EQ(by_mount.code, 2) << name << by_mount.err;
    EXPECT_THAT(by_mount.err, HasSubstr("would damage")) << name;
    const Outcome copy = qtrain({.words = generate(at("out/best/") + name)});
    EXPECT_EQ(copy.code, 2) << name << copy.err;
    EXPECT_THAT(copy.err, HasSubstr("would damage best")) << name;
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", at("config.json"), "output_dir=" + at("mount")},
        {"quantize", "--model", at("model"), "--output", at("mount")}}) {
    std::vector<std::string> all = words;
    all.emplace_back("--overwrite");
    const Outcome refused = mounted_qtrain(at("out/checkpoint-2"), at("mount"), all);
    EXPECT_EQ(refused.code, 2) << words[0] << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("would damage")) << words[0];
  }
  for (const char* name : {"out/checkpoint-2", "out/best"})
    EXPECT_THAT(qtrain_ok({.words = {"inspect", at(name), "--verify"}}).out, HasSubstr(all_there)) << name;
}

TEST_F(Mounts, OfAModelThatIsReadAreNotWrittenTo) {
  const std::string before = bytes_of(at("model/model.safetensors"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"export", "--model", at("model"), "--output", at("mount/model.safetensors")},
        {"export", "--model", at("model"), "--output", at("mount/new.gguf")},
        {"quantize", "--model", at("model"), "--output", at("mount")},
        {"quantize", "--model", at("model"), "--output", at("mount/in/it")},
        {"train", at("config.json"), "output_dir=" + at("mount"), "model_name_or_path=" + at("model"),
         "max_steps=1"}}) {
    std::vector<std::string> all = words;
    all.emplace_back("--overwrite");
    const Outcome refused = mounted_qtrain(at("model"), at("mount"), all);
    EXPECT_EQ(refused.code, 2) << words[0] << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("input of the ")) << words[0];
  }
  EXPECT_EQ(bytes_of(at("model/model.safetensors")), before);
}

TEST_F(Mounts, OfASingleFileAreWrittenInPlace) {
  write_file(at("target"), std::string());
  write_file(at("page"), std::string());
  const Outcome written = mounted_qtrain(at("target"), at("page"), generate(at("page")));
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(read_jsonl(at("target")).size(), 1u);
  const std::string longer = bytes_of(at("target")) + std::string(10'000, '\n');
  write_file(at("target"), longer);
  const Outcome again = mounted_qtrain(at("target"), at("page"), generate(at("page")));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_LT(fs::file_size(at("target")), longer.size()) << "the rest of what was there is gone";
  EXPECT_EQ(bytes_of(at("page")), "") << "it is under the mount";
}

}  // namespace
}  // namespace qtrain::e2e
