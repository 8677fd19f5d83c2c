#include "config/dataset_card.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/source/mixture.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TempFolder;

// The front matter of openai/gsm8k, shortened.
constexpr const char* kTwoConfigs = R"(---
license: mit
dataset_info:
- config_name: main
  features:
  - name: question
    dtype: string
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: socratic
  data_files:
  - split: train
    path: socratic/train-*
tags:
- math
---
# Card
configs:
- config_name: not in the front matter
)";

std::string first_file(const DatasetCard& card) {
  return card.splits.empty() ? "none" : card.splits[0].name + " " + card.splits[0].files[0];
}

TEST(DatasetCard, HasTheFilesOfEachSplit) {
  const auto main = read_dataset_card(kTwoConfigs, "main");
  ASSERT_TRUE(main);
  ASSERT_EQ(main->splits.size(), 2u);
  EXPECT_EQ(first_file(*main), "train main/train-*");
  EXPECT_EQ(main->splits[1].name, "test");
  EXPECT_EQ(first_file(*read_dataset_card(kTwoConfigs, "socratic")), "train socratic/train-*");
  EXPECT_THAT(test::error_of(ErrorKind::usage, [] { read_dataset_card(kTwoConfigs, "other"); }),
              HasSubstr("no config \"other\", but its configs are main, socratic"));
  EXPECT_THAT(test::error_of(ErrorKind::usage, [] { read_dataset_card(kTwoConfigs, std::nullopt); }),
              HasSubstr("no default config"));
}

struct CardCase {
  const char *configs, *file;
};
TEST(DatasetCard, ListsFilesInEveryFormOfTheLibrary) {
  constexpr CardCase kCases[] = {
      {"configs:\n- config_name: a\n  data_files: rows.jsonl\n", "train rows.jsonl"},
      {"configs:\n- config_name: a\n  data_files: [rows.jsonl, more.jsonl]\n", "train rows.jsonl"},
      {"configs:\n- config_name: a\n  data_files:\n    train: x/*.csv\n    test: y/*.csv\n", "train x/*.csv"},
      {"configs:\n- config_name: a\n  data_files:\n  - split: dev\n    path: [d.csv]\n", "dev d.csv"},
      {"configs:\n- config_name: a\n- config_name: b\n  default: true\n  data_files: b.csv\n", "train b.csv"},
      {"configs:\n- config_name: b\n  data_files: b.csv\n- config_name: default\n  data_files: a.csv\n", "train a.csv"},
      {"configs:\n- config_name: a\n  data_files: [../x.csv, /etc/passwd, \"a\\nb\", ok.csv]\n", "train ok.csv"},
      {"configs:\n- config_name: a\n  data_files: ../x.csv\n", "none"},
  };
  for (const CardCase& c : kCases) {
    const auto card = read_dataset_card(std::string("---\n") + c.configs + "---\n", std::nullopt);
    ASSERT_TRUE(card) << c.configs;
    EXPECT_EQ(first_file(*card), c.file) << c.configs;
  }
  for (const char* text : {"", "# Title\n", "---\nlicense: mit\n---\n", "---\nconfigs: 3\n---\n",
                           "---\nconfigs: []\n---\n", "---\nconfigs: [\n---\n", "---\nconfigs:\n- config_name: a\n"})
    EXPECT_FALSE(read_dataset_card(text, std::nullopt)) << text;
}

/// A data set with the card above, and a folder that the card does not list.
class CardInFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* file :
         {"main/train-0.jsonl", "main/train-1.jsonl", "main/test-0.jsonl", "socratic/train-0.jsonl"}) {
      fs::create_directories((folder_.path() / file).parent_path());
      std::ofstream(folder_.path() / file) << "{}\n";
    }
    std::ofstream(folder_.path() / "README.md") << kTwoConfigs;
  }
  std::vector<std::string> files(const std::optional<std::string>& config, const std::string& split = {}) {
    DataSource source{.files = {folder_.path().string()}, .config = config};
    if (!split.empty()) source.splits = read_split(split);
    apply_cards(source);
    std::vector<std::string> names;
    for (const auto& of_split : source_files({source}, Split::train))
      for (const fs::path& file : of_split) names.push_back(file.lexically_relative(folder_.path()).string());
    return names;
  }
  TempFolder folder_;
};

TEST_F(CardInFolder, ChoosesTheFilesOfConfigAndSplit) {
  EXPECT_THAT(files("main"), ElementsAre("main/train-0.jsonl", "main/train-1.jsonl"));
  EXPECT_THAT(files("main", "test"), ElementsAre("main/test-0.jsonl"));
  EXPECT_THAT(files("main", "train+test"),
              ElementsAre("main/train-0.jsonl", "main/train-1.jsonl", "main/test-0.jsonl"));
  EXPECT_THAT(files("socratic"), ElementsAre("socratic/train-0.jsonl"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { files("socratic", "test"); }), HasSubstr("no test split"));
}

// The files of another config are there, as in a cache to which only that one was fetched.
TEST_F(CardInFolder, AConfigWithoutFilesIsNotReplacedByAnother) {
  fs::remove_all(folder_.path() / "socratic");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { files("socratic"); }),
              AllOf(HasSubstr("socratic/train-*"), Not(HasSubstr("--fetch"))));
  fs::remove_all(folder_.path() / "main");
  std::ofstream(folder_.path() / "other.jsonl") << "{}\n";
  const std::string one = "---\nconfigs:\n- config_name: a\n  data_files: a/*\n";
  const std::string chosen = one + "  default: true\n- config_name: b\n  data_files: b/*\n---\n";
  std::ofstream(folder_.path() / "README.md") << chosen;
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { files({}); }), HasSubstr("a/*"));
  std::ofstream(folder_.path() / "README.md") << one << "---\n";
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { files("a"); }), HasSubstr("a/*"));
  EXPECT_THAT(files({}), ElementsAre("other.jsonl")) << "an outdated card of a data set with one config";
}

/// The front matter of a card whose only config has these lines.
std::string card_with(const std::string& lines) {
  return "---\nconfigs:\n- config_name: a\n  data_files:\n" + lines + "---\n";
}

// Each "**" of a pattern can stand for any part of a path, which gives 10^17 ways here.
TEST_F(CardInFolder, ManyWaysToAFileAreOne) {
  std::string deep, pattern;
  for (int i = 0; i < 300; ++i) deep += "d/";
  for (int i = 0; i < 100; ++i) pattern += "**/*/";
  fs::create_directories(folder_.path() / deep);
  std::ofstream(folder_.path() / deep / "x.jsonl") << "{}\n";
  std::ofstream(folder_.path() / "README.md") << card_with("  - \"" + pattern + "x.jsonl\"\n");
  EXPECT_THAT(files("a"), ElementsAre(deep + "x.jsonl"));
}

// A card of 200 kB could ask for days of comparisons.
TEST_F(CardInFolder, TooManyComparisonsAreRefused) {
  for (int i = 0; i < 3000; ++i) std::ofstream(folder_.path() / fmt::format("{}.jsonl", i)) << "{}\n";
  std::string lines;
  for (int i = 0; i < 8000; ++i) lines += fmt::format("  - x{}*\n", i);
  std::ofstream(folder_.path() / "README.md") << card_with(lines);
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { files("a"); }), HasSubstr("too many names"));
}

TEST(DatasetCard, NamesOfConfigsAreShownInOneShortLine) {
  std::string card =
      "---\nconfigs:\n- config_name: \"a\\nb\\e[31m\"\n- config_name: " + std::string(100'000, 'x') + "\n";
  for (int i = 0; i < 3000; ++i) card += fmt::format("- config_name: c{}\n", i);
  const std::string text = test::error_of(ErrorKind::usage, [&] { read_dataset_card(card + "---\n", std::nullopt); });
  EXPECT_THAT(text, HasSubstr("a\\nb\\x1b[31m, xxx"));
  EXPECT_LT(text.size(), 2000u);
}

TEST_F(CardInFolder, WithoutACardAConfigIsAFolder) {
  fs::remove(folder_.path() / "README.md");
  EXPECT_THAT(files("socratic"), ElementsAre("socratic/train-0.jsonl"));
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { files("other"); }), HasSubstr("there is no config \"other\""));
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { files("../main"); }), HasSubstr("there is no config"));
  fs::remove_all(folder_.path() / "socratic");
  EXPECT_THAT(files("default"), ElementsAre("main/train-0.jsonl", "main/train-1.jsonl"));
}

}  // namespace
}  // namespace qtrain
