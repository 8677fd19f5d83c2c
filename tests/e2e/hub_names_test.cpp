// Models, adapters and data sets that are named as on the hub, and found in the cache of its libraries.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

/// Puts the files of a folder into a snapshot of a cache, as links to blobs.
fs::path cache_files(const fs::path& cache, const std::string& repo, const fs::path& from) {
  const fs::path folder = cache / repo, snapshot = folder / "snapshots" / kCommit;
  fs::create_directories(snapshot);
  fs::create_directories(folder / "blobs");
  fs::create_directories(folder / "refs");
  write_file(folder / "refs/main", kCommit);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    fs::copy_file(entry.path(), folder / "blobs" / name);
    fs::create_symlink("../../blobs/" + name, snapshot / name);
  }
  return snapshot;
}

/// A tiny adapter run of o/m on o/d, offline.
class NamedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    Json run = tiny_lora_run(folder_ / "out");
    const fs::path rows = run["dataset_name"].is_array() ? run["dataset_name"][0] : run["dataset_name"];
    fs::create_directories(folder_ / "rows");
    fs::copy_file(rows, folder_ / "rows/train-00000-of-00001.jsonl");
    model_ = cache_files(folder_ / "cache", "models--o--m", run["model_name_or_path"].get<std::string>());
    cache_files(folder_ / "cache", "datasets--o--d", folder_ / "rows");
    by_path_ = run;
    run.update({{"model_name_or_path", "o/m"}, {"dataset_name", "o/d"}});
    write_file(folder_ / "config.json", dump_json(run));
  }
  Outcome run(std::vector<std::string> words) {
    return qtrain({.words = std::move(words),
                   .folder = folder_.path(),
                   .environment = {"HF_HUB_CACHE=" + (folder_ / "cache").string(), "HF_HUB_OFFLINE=1"}});
  }
  TempFolder folder_;
  fs::path model_;
  Json by_path_;
};

TEST_F(NamedRun, GivesTheSameAdapterAsPaths) {
  const Outcome named = run({"config.json"});
  ASSERT_EQ(named.code, 0) << named.err;
  by_path_["output_dir"] = (folder_ / "other").string();
  fs::create_directories(folder_ / "elsewhere");
  train_ok(folder_ / "elsewhere", by_path_);
  EXPECT_EQ(bytes_of(folder_ / "out/adapter_model.safetensors"), bytes_of(folder_ / "other/adapter_model.safetensors"));
  const Json adapter = read_json(folder_ / "out/adapter_config.json");
  EXPECT_EQ(adapter["base_model_name_or_path"], "o/m");
  EXPECT_EQ(adapter["revision"], kCommit);
  EXPECT_FALSE(read_json(folder_ / "other/adapter_config.json").contains("revision")) << "a folder has none";
  const Json model = read_json(folder_ / "out/resolved_config.json")["values"]["model_name_or_path"];
  EXPECT_EQ(model["value"], model_.string());
  EXPECT_THAT(model["origin"].get<std::string>(), HasSubstr("o/m, commit " + kCommit));
}

TEST_F(NamedRun, CommandsTakeNames) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"validate", "config.json"},
                                                {"estimate", "config.json"},
                                                {"config", "config.json"},
                                                {"inspect", "o/m"},
                                                {"inspect", "o/m@" + kCommit.substr(0, 8)},
                                                {"quantize", "--model", "o/m", "--output", "quantized"},
                                                {"preprocess", "config.json"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << words[0] << outcome.err << outcome.out;
  }
}

TEST_F(NamedRun, ANameThatIsNotThereSaysWhereItWasLookedFor) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"config.json", "model_name_or_path=o/none"},
        {"validate", "config.json", "model_name_or_path=o/none"},
        {"estimate", "config.json", "model_name_or_path=o/none"},
        {"inspect", "o/none"},
        {"chat", "--model", "o/none"},
        {"merge", "--model", "o/m", "--adapter", "o/none", "--output", "merged"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 3) << words[0];
    EXPECT_THAT(outcome.err + outcome.out,
                AllOf(HasSubstr("o/none"), HasSubstr((folder_ / "cache/models--o--none").string())))
        << words[0];
  }
  const Outcome revision = run({"config.json", "model_revision=v2"});
  EXPECT_EQ(revision.code, 3);
  EXPECT_THAT(revision.err, AllOf(HasSubstr("no snapshot of revision v2"), HasSubstr("it has main")));
}

}  // namespace
}  // namespace qtrain::e2e
