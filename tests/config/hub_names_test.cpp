#include "config/hub_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/config/support.h"
#include "tests/core/temp_folder.h"
#include "tests/hub/variables.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567",
                  kOther = "ffffffffffffffffffffffffffffffffffffffff";

/// A cache with the model o/m at main and v1, the adapter o/a, and the data sets o/d and "old".
class NamesInConfigs : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* repo : {"models--o--m", "models--o--a", "datasets--o--d", "datasets--old"}) {
      fs::create_directories(cache_.path() / repo / "refs");
      std::ofstream(cache_.path() / repo / "refs/main") << kCommit;
      std::ofstream(cache_.path() / repo / "refs/v1") << kOther;
      for (const std::string& commit : {kCommit, kOther})
        fs::create_directories(cache_.path() / repo / "snapshots" / commit);
    }
  }
  std::string at(const std::string& repo, const std::string& commit = kCommit) const {
    return (cache_.path() / repo / "snapshots" / commit).string();
  }

  TempFolder cache_;
  test::HubVariables variables_{{{"HF_HUB_CACHE", cache_.path().string()}}};
};

TEST_F(NamesInConfigs, BecomeTheirFoldersInTheCache) {
  const ResolvedConfig config = parse_config(
      R"({"model_name_or_path": "o/m", "adapter_name_or_path": "o/a@v1", "dataset_name": ["o/d", "old", "o/d@v1/x/*.csv"]})",
      "c.json");
  EXPECT_EQ(config.value.model.model_name_or_path, at("models--o--m"));
  EXPECT_EQ(config.value.model.adapter_name_or_path, at("models--o--a", kOther));
  EXPECT_THAT(config.value.data.dataset_name,
              ElementsAre(at("datasets--o--d"), at("datasets--old"), at("datasets--o--d", kOther) + "/x/*.csv"));
  EXPECT_EQ(config.origin.at("model_name_or_path"), "c.json:1: o/m, commit " + kCommit);
  ASSERT_EQ(config.hub_names.size(), 5u);
  for (const NamedOnHub& named : config.hub_names) EXPECT_TRUE(named.place) << named.key;
}

TEST_F(NamesInConfigs, TakeTheRevisionOfTheModel) {
  for (const char* key : {"model_revision", "revision"}) {
    const Config config = value_of(std::string(R"({"model_name_or_path": "o/m", ")") + key + R"(": "v1",
        "adapter_name_or_path": "o/a"})");
    EXPECT_EQ(config.model.model_name_or_path, at("models--o--m", kOther)) << key;
    EXPECT_EQ(config.model.adapter_name_or_path, at("models--o--a")) << key;
  }
  EXPECT_EQ(value_of(R"({"model_name_or_path": "o/m@main", "model_revision": "v1"})").model.model_name_or_path,
            at("models--o--m"))
      << "the name wins";
  EXPECT_THAT(complaint_about(R"({"model_name_or_path": "o/m", "model_revision": "../x"})"),
              HasSubstr("not a revision"));
  EXPECT_EQ(value_of(R"({"base_model": "o/m", "sequence_len": 9, "revision_of_model": "v1"})").model.model_name_or_path,
            at("models--o--m", kOther));
}

TEST_F(NamesInConfigs, ListsOfDataSetsHaveThemToo) {
  const auto mixture = [](const char* text) { return value_of(text).data.dataset_mixture; };
  const Json sources =
      mixture(R"({"dataset_mixture": [{"path": "o/d", "revision": "v1", "name": "c", "split": "test"}, "o/d"]})");
  EXPECT_EQ(sources[0], (Json{{"path", at("datasets--o--d", kOther)}, {"name", "c"}, {"split", "test"}}));
  EXPECT_EQ(sources[1], at("datasets--o--d"));
  const Json axolotl = mixture(
      R"({"base_model": "o/m", "sequence_len": 9, "datasets": [
          {"path": "o/d", "name": "main", "type": "chat_template", "split": "train[:9]"},
          {"path": "json", "data_files": ["hf://datasets/o/d/x.json"], "type": "chat_template"}]})");
  EXPECT_EQ(axolotl[0]["data_files"][0], at("datasets--o--d"));
  EXPECT_EQ(axolotl[0]["name"], "main");
  EXPECT_EQ(axolotl[1]["data_files"][0], "o/d/x.json") << "this file is not there";
  const Config one = value_of(R"({"base_model": "o/m", "sequence_len": 9, "datasets": [
          {"path": "o/d", "name": "main", "type": "chat_template"}]})");
  EXPECT_EQ(one.data.dataset_config, "main");
  EXPECT_THAT(one.data.dataset_name, ElementsAre(at("datasets--o--d")));
}

TEST_F(NamesInConfigs, ThatAreNotInTheCacheStayAndAreReported) {
  const ResolvedConfig config = parse_config(
      R"({"model_name_or_path": "o/none", "dataset_name": ["o/d@v2", "rows.jsonl", "data/rows.jsonl"]})", "c");
  EXPECT_EQ(config.value.model.model_name_or_path, "o/none");
  ASSERT_EQ(config.hub_names.size(), 2u);
  const ErrorText text = not_found(config.hub_names[0]);
  EXPECT_EQ(text.place, "o/none");
  EXPECT_THAT(text.cause, AllOf(HasSubstr("model_name_or_path is not on this machine"), HasSubstr("models--o--none")));
  EXPECT_THAT(not_found(config.hub_names[1]).cause,
              AllOf(HasSubstr("no snapshot of revision v2"), HasSubstr("main, v1")));
  EXPECT_EQ(value_of(R"({"model_name_or_path": "none"})").model.model_name_or_path, "none");
}

}  // namespace
}  // namespace qtrain
