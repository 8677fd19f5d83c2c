// Runs and commands that fetch what they name from a hub.
#include <fmt/format.h>

#include "core/os/file.h"
#include "tests/e2e/support.h"
#include "tests/hub/hub_server.h"

namespace qtrain::e2e {
namespace {

using test::HubFault;
using test::HubServer;
using test::repository_of;
using test::ServedRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A tiny adapter run of the model o/m on a config of the data set o/d, both on a hub of this test.
class FetchingRun : public ::testing::Test {
 protected:
  void SetUp() override {
    Json run = tiny_lora_run(folder_ / "out");
    const std::string rows = bytes_of(run["dataset_name"].get<std::string>());
    hub_.add("models/o/m", repository_of(run["model_name_or_path"].get<std::string>()));
    hub_.add("datasets/o/d", {{"README.md", {.contents = kCard}},
                              {"a/train-0.jsonl", {.contents = rows}},
                              {"a/test-0.jsonl", {.contents = "not needed"}},
                              {"b/train-0.jsonl", {.contents = "not needed either"}},
                              {"pictures/cat.png", {.contents = "png"}}});
    run.update({{"model_name_or_path", "o/m"}, {"dataset_name", "o/d"}, {"dataset_config", "a"}, {"max_steps", 1}});
    write_file(folder_ / "config.json", dump_json(run));
  }
  /// `more` wins over the other variables.
  Outcome run(std::vector<std::string> words, const std::string& more = "NOTHING=1") {
    return qtrain({.words = std::move(words),
                   .folder = folder_.path(),
                   .environment = {more, "HF_HUB_OFFLINE=0", "HF_HUB_CACHE=" + (folder_ / "cache").string(),
                                   "HF_ENDPOINT=" + hub_.url()}});
  }

  static constexpr const char* kCard =
      "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n    path: a/train-*\n  - split: test\n"
      "    path: a/test-*\n- config_name: b\n  data_files: b/*.jsonl\n---\n";
  TempFolder folder_;
  HubServer hub_;
};

TEST_F(FetchingRun, TrainsOnWhatItNames) {
  const Outcome first = run({"config.json"}, "HF_TOKEN=hf_secret");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("fetching"), Not(HasSubstr("hf_secret"))));
  EXPECT_EQ(read_json(folder_ / "out/adapter_config.json")["base_model_name_or_path"], "o/m");
  EXPECT_EQ(hub_.count("a/train-0.jsonl"), 1);
  for (const char* file : {"a/test-0", "b/train-0", "cat.png"}) EXPECT_EQ(hub_.count(file), 0) << file;
  for (const ServedRequest& request : hub_.requests()) EXPECT_TRUE(request.has_token()) << request.path;
  const std::size_t requests = hub_.requests().size();
  const Outcome again = run({"config.json", "output_dir=again"}, "HF_HUB_OFFLINE=1");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(hub_.requests().size(), requests);
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "out"))
    if (entry.is_regular_file()) {
      EXPECT_THAT(bytes_of(entry.path()), Not(HasSubstr("hf_secret"))) << entry.path();
    }
}

TEST_F(FetchingRun, OtherSplitsOfItsDataFollow) {
  ASSERT_EQ(run({"config.json"}).code, 0);
  const Outcome other = run({"config.json", "output_dir=other", "dataset_train_split=test"});
  EXPECT_NE(other.code, 0) << "these rows are not JSON";
  EXPECT_EQ(hub_.count("a/test-0.jsonl"), 1);
  EXPECT_EQ(hub_.count("a/train-0.jsonl"), 1);
}

TEST_F(FetchingRun, ValidateAndEstimateFetchNothingUnlessAsked) {
  const Outcome validate = run({"validate", "config.json"});
  EXPECT_EQ(validate.code, 3);
  EXPECT_THAT(validate.out, AllOf(HasSubstr("o/m: model_name_or_path is not on this machine"), HasSubstr("--fetch")));
  EXPECT_THAT(run({"estimate", "config.json"}).err, AllOf(HasSubstr("o/m"), HasSubstr("--fetch")));
  EXPECT_EQ(hub_.requests().size(), 0u);
  const Outcome estimate = run({"estimate", "config.json", "--fetch", "--no_data"});
  EXPECT_EQ(estimate.code, 0) << estimate.err;
  EXPECT_EQ(hub_.count("config.json"), 1);
  EXPECT_EQ(hub_.count("model.safetensors"), 0) << "an estimate needs no weights";
  EXPECT_EQ(hub_.count("datasets"), 0);
  const Outcome later = run({"estimate", "config.json"});
  EXPECT_EQ(later.code, 0) << later.err;
  EXPECT_THAT(later.err, HasSubstr("all rows are assumed to be max_length tokens long"));
  EXPECT_EQ(run({"validate", "config.json", "--fetch"}).code, 0);
  EXPECT_GT(hub_.count("model.safetensors"), 0);
}

TEST_F(FetchingRun, CommandsFetchWhatTheyName) {
  EXPECT_EQ(run({"inspect", "o/m"}).code, 0);
  EXPECT_GT(hub_.count("model.safetensors"), 0);
  hub_.fail_with([](const ServedRequest&) { return std::optional(HubFault{.status = 401}); });
  const Outcome unknown = run({"chat", "--model", "o/private"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("o/private"), HasSubstr("it is private"), HasSubstr("HF_TOKEN")));
}

// What another program has left may be a part of what it was to fetch: training on it would go unnoticed.
TEST_F(FetchingRun, APartOfADataSetIsCompleted) {
  const std::string rows = bytes_of(tiny_run("out")["dataset_name"].get<std::string>());
  const std::string commit = hub_.add("datasets/o/s", {{"train-00000-of-00002.jsonl", {.contents = rows}},
                                                       {"train-00001-of-00002.jsonl", {.contents = rows}}});
  const fs::path repo = folder_ / "cache/datasets--o--s", snapshot = repo / "snapshots" / commit;
  fs::create_directories(snapshot);
  fs::create_directories(repo / "refs");
  write_file(snapshot / "train-00000-of-00002.jsonl", rows);
  write_file(repo / "refs/main", commit);
  const std::vector<std::string> words{"config.json", "dataset_name=o/s", "dataset_config=null"};
  ASSERT_EQ(run({"inspect", "o/m"}).code, 0);
  const Outcome offline = run(words, "HF_HUB_OFFLINE=1");
  EXPECT_EQ(offline.code, 3);
  EXPECT_THAT(offline.err, HasSubstr("is not complete"));
  const Outcome online = run(words);
  EXPECT_EQ(online.code, 0) << online.err;
  EXPECT_EQ(hub_.count("train-00001-of-00002"), 1);
  fs::remove(snapshot / "train-00001-of-00002.jsonl");
  EXPECT_EQ(run({"config.json", "dataset_name=o/s", "dataset_config=null", "output_dir=again"}).code, 0);
  EXPECT_TRUE(fs::exists(snapshot / "train-00001-of-00002.jsonl"));
}

// Without a list, nothing in the snapshot says that files are missing.
TEST_F(FetchingRun, ASnapshotOfAnotherProgramIsComparedWithTheHub) {
  const std::string rows = bytes_of(tiny_run("out")["dataset_name"].get<std::string>());
  const HubServer::Files files = {
      {"README.md", {.contents = "# d"}}, {"a.jsonl", {.contents = rows}}, {"b.jsonl", {.contents = rows}}};
  const std::string commit = hub_.add("datasets/o/q", files);
  const fs::path repo = folder_ / "cache/datasets--o--q", snapshot = repo / "snapshots" / commit;
  const std::vector<std::string> words{"config.json", "dataset_name=o/q", "dataset_config=null", "--overwrite"};
  ASSERT_EQ(run({"config.json"}).code, 0);  // fetches the model
  for (const char* there : {"README.md", "a.jsonl"}) {
    fs::remove_all(repo);
    fs::create_directories(snapshot);
    fs::create_directories(repo / "refs");
    write_file(snapshot / there, files.at(there).contents);
    write_file(repo / "refs/main", commit);
    const Outcome online = run(words);
    EXPECT_EQ(online.code, 0) << online.err;
    EXPECT_TRUE(fs::exists(snapshot / "b.jsonl")) << there;
  }
  fs::remove_all(repo / "trees");
  const Outcome offline = run(words, "HF_HUB_OFFLINE=1");
  EXPECT_EQ(offline.code, 0) << offline.err;
  EXPECT_THAT(offline.err, HasSubstr("without knowing whether all are there"));
}

TEST_F(FetchingRun, AConfigThatIsNotInTheCacheIsNotReplacedByAnother) {
  ASSERT_EQ(run({"config.json"}).code, 0);
  const std::string tree_free = (folder_ / "cache/datasets--o--d/trees").string();
  fs::remove_all(tree_free);
  const Outcome offline = run({"config.json", "dataset_config=b", "output_dir=b"}, "HF_HUB_OFFLINE=1");
  EXPECT_EQ(offline.code, 3);
  EXPECT_THAT(offline.err, AllOf(HasSubstr("b/*.jsonl"), HasSubstr("--fetch")));
  EXPECT_EQ(run({"estimate", "config.json", "dataset_config=b"}).code, 3);
}

// Laying a file out takes milliseconds on some file systems, and some data sets have very many.
TEST_F(FetchingRun, OnlyFilesThatAPathMaySelectAreLaidOut) {
  const std::string rows = bytes_of(tiny_run("out")["dataset_name"].get<std::string>());
  HubServer::Files files = {{"rows/train-0.jsonl", {.contents = rows}}};
  files["a.jsonl"] = files["a.jsonl/b.jsonl"] = {.contents = "both cannot be laid out"};
  hub_.add("datasets/o/many", files);
  for (const char* path : {"o/many/rows/train-0.jsonl", "o/many/rows/*.jsonl", "o/many/rows"}) {
    const Outcome outcome =
        run({"config.json", fmt::format("dataset_name={}", path), "dataset_config=null", "--overwrite"});
    EXPECT_EQ(outcome.code, 0) << path << outcome.err;
  }
  const Outcome all = run({"config.json", "dataset_name=o/many", "dataset_config=null", "--overwrite"});
  EXPECT_EQ(all.code, 6) << all.err;
  EXPECT_THAT(all.err, HasSubstr("a.jsonl"));
}

TEST_F(FetchingRun, AMessageNamesTheDataSet) {
  const Outcome config = run({"config.json", "dataset_config=c"});
  EXPECT_EQ(config.code, 2);
  EXPECT_THAT(config.err, AllOf(HasSubstr("no config \"c\""), HasSubstr("o/d"), Not(HasSubstr("qtrain-hub"))));
  EXPECT_THAT(run({"config.json", "dataset_train_split=none"}).err,
              AllOf(HasSubstr("o/d"), Not(HasSubstr("qtrain-hub"))));
}

}  // namespace
}  // namespace qtrain::e2e
