
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataSources : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_ / "a.jsonl",
               "{\"q\":\"1\",\"r\":\"x\"}\n{\"q\":\"2\",\"r\":\"y\"}\n{\"q\":\"3\",\"r\":\"z\"}\n");
    write_file(folder_ / "b.csv", "prompt,completion\nb one,b\nb two,b\n");
  }
  Config config(Json settings) const {
    settings["model_name_or_path"] = "m";
    settings["output_dir"] = "o";
    return parse_config(dump_json(settings), "c.json").value;
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::vector<std::string> prompts(const RawRows& rows) {
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < rows.size(); ++i) out.push_back(rows.parse(i)["prompt"]);
    return out;
  }
  Json renamed() const {
    return {{"path", path("a.jsonl")}, {"column_mapping", {{"prompt", "q"}, {"completion", "r"}}}};
  }

  testing::TempFolder folder_;
};

TEST_F(DataSources, ColumnsUnderOtherNamesAreTheRowsOfARun) {
  const Config c =
      config({{"dataset_name", path("a.jsonl")}, {"column_mapping", {{"prompt", "q"}, {"completion", "r"}}}});
  const RawRows rows = data_rows(c, Split::train);
  EXPECT_THAT(prompts(rows), ElementsAre("1", "2", "3"));
  EXPECT_EQ(describe_rows(rows, c.data), "3 rows of prompt+completion in 1 jsonl file");
  EXPECT_EQ(data_rows(c, Split::evaluation).size(), 0);
  EXPECT_EQ(describe_rows(rows.slice(0, 1), c.data), "1 row of prompt+completion in 1 jsonl file");
}

TEST_F(DataSources, SplitsAndPartsOfThemAreTheRowsThatTheyName) {
  std::string ten, five;
  for (int i = 0; i < 10; ++i) ten += R"({"prompt":"t)" + std::to_string(i) + R"(","completion":"c"})" + "\n";
  for (int i = 0; i < 5; ++i) five += R"({"prompt":"e)" + std::to_string(i) + R"(","completion":"c"})" + "\n";
  for (const char* file : {"set/train.jsonl", "ten.jsonl"}) {
    fs::create_directories((folder_ / file).parent_path());
    write_file(folder_ / file, ten);
  }
  write_file(folder_ / "set/test.jsonl", five);
  const std::string set = path("set"), file = path("ten.jsonl");
  const struct {
    Json settings;
    std::vector<std::string> train;
    std::vector<std::string> evaluation = {};
  } cases[] = {
      {{{"dataset_name", file}, {"dataset_train_split", "train[:2]"}}, {"t0", "t1"}},
      {{{"dataset_name", set}, {"dataset_train_split", "train[:20%]"}}, {"t0", "t1"}},
      {{{"dataset_name", set}, {"dataset_train_split", "test"}}, {"e0", "e1", "e2", "e3", "e4"}},
      {{{"dataset_name", set}, {"dataset_train_split", "train[:1]+test[-2:]"}}, {"t0", "e3", "e4"}},
      {{{"dataset_name", file},
        {"dataset_train_split", "train[:10%]"},
        {"eval_dataset_name", file},
        {"dataset_test_split", "train[90%:]"}},
       {"t0"},
       {"t9"}},
      {{{"dataset_name", set},
        {"dataset_train_split", "train[:1]"},
        {"dataset_test_split", "test[:1]"},
        {"eval_strategy", "steps"},
        {"eval_steps", 5}},
       {"t0"},
       {"e0"}},
      {{{"dataset_mixture", {{{"path", set}, {"split", "test[:1]"}}, {{"path", set}, {"split", "train[8:]"}}}}},
       {"e0", "t8", "t9"}},
      {{{"datasets", {{{"path", file}, {"split", "train[10:20]"}}, {{"path", file}, {"split", "train[3:4]"}}}}},
       {"t3"}},
      {{{"dialect", "axolotl"},
        {"datasets", {{{"path", set}, {"type", "chat_template"}, {"split", "train[:2]"}}}},
        {"test_datasets", {{{"path", set}, {"type", "chat_template"}, {"split", "train[-1:]"}}}}},
       {"t0", "t1"},
       {"t9"}},
      {{{"dialect", "axolotl"}, {"datasets", {{{"path", set}, {"split", "test"}}}}}, {"e0", "e1", "e2", "e3", "e4"}},
      {{{"datasets",
         {{{"path", "json"},
           {"data_files", {{"train", file}, {"test", set + "/test.jsonl"}}},
           {"split", "test[:1]"}}}}},
       {"e0"}},
      {{{"datasets",
         {{{"path", "json"},
           {"data_files", {{"train", file}, {"test", set + "/test.jsonl"}}},
           {"split", "test+train"}}}}},
       {"e0", "e1", "e2", "e3", "e4", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"}},
  };
  EXPECT_THAT(error_of([&] {
                data_rows(config({{"dataset_name", file}, {"dataset_train_split", "train+test"}}), Split::train);
              }).what(),
              HasSubstr("splits \"train\" and \"test\" are the same files"));
  for (const auto& c : cases) {
    const Config config = this->config(c.settings);
    EXPECT_EQ(prompts(data_rows(config, Split::train)), c.train) << c.settings;
    EXPECT_EQ(prompts(data_rows(config, Split::evaluation)), c.evaluation) << c.settings;
  }
}

TEST_F(DataSources, SplitsThatCannotBeAreProblemsOfTheConfig) {
  const std::pair<Json, const char*> cases[] = {
      {{{"dataset_train_split", "train[2]"}}, "split \"train[2]\" has no colon"},
      {{{"dataset_test_split", "test["}, {"eval_dataset_name", "e"}}, "split \"test[\""},
      {{{"dataset_name", nullptr}, {"dataset_mixture", {{{"path", "a"}, {"split", "train[:200%]"}}}}}, "100 percent"},
      {{{"dataset_name", nullptr}, {"datasets", {{{"path", "a"}, {"split", "t]"}}}}}, "split \"t]\""},
      {{{"dataset_name", nullptr}, {"dataset_mixture", {"a"}}, {"dataset_train_split", "test"}}, "give its sources"},
      {{{"dialect", "axolotl"},
        {"test_datasets", {{{"path", "a"}, {"split", "train"}}, {{"path", "b"}, {"split", "test"}}}}},
       "evaluation rows have one split"},
  };
  for (const auto& [settings, what] : cases) {
    Json all{{"dataset_name", "a.jsonl"}};
    all.update(settings);
    EXPECT_THAT(test::error_if_any(ErrorKind::usage, [&] { config(all); }), HasSubstr(what)) << settings;
  }
}

TEST_F(DataSources, AMappingThatTheRowsDoNotHaveIsNamedWithThem) {
  const auto complaint = [&](const char* key, const char* map) {
    const Config c = config({{"dataset_name", path("talks.jsonl")}, {key, parse_json(map, "map")}});
    return test::error_if_any(ErrorKind::input, [&] { data_rows(c, Split::train); });
  };
  write_file(folder_ / "talks.jsonl",
             R"({"id": 1, "talk": [{"who": "user", "words": "q"}, {"who": "assistant", "words": "a"}]}
{"id": 2, "talk": [{"who": "user", "words": "q"}], "note": "later"})");
  EXPECT_EQ(complaint("column_mapping", R"({"messages": "tlak"})"),
            path("talks.jsonl") +
                ":1: column_mapping maps 'tlak' to messages, but the first rows have no such column: they have id, "
                "note, talk\n  Use the name in the rows, or remove the mapping.");
  EXPECT_THAT(complaint("column_mapping", R"({"text": "{title}: {id}"})"),
              HasSubstr("column_mapping builds text from title, id"));
  EXPECT_EQ(complaint("column_mapping", R"({"messages": "talk", "tools": "note"})"), "no error");
  EXPECT_EQ(complaint("column_mapping", R"({"text": ["{title}: {id}", "{id}"]})"), "no error");
  Json settings{{"dataset_name", path("talks.jsonl")}, {"column_mapping", {{"messages", "talk"}}}};
  settings["message_property_mappings"] = {{"role", "speaker"}, {"content", "words"}};
  EXPECT_THAT(test::error_of([&] { data_rows(config(settings), Split::train); }).what(),
              HasSubstr("message_property_mappings maps 'speaker' to role, but the first rows have no such key of a "
                        "message: they have who, words"));
}

TEST_F(DataSources, KeysOfMessagesAreLookedForWithoutAnyColumnToFind) {
  write_file(folder_ / "chats.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"translated\":\"b\"}]}\n");
  const auto error = error_of([&] {
    data_rows(
        config({{"dataset_name", path("chats.jsonl")}, {"message_property_mappings", {{"content", "transalted"}}}}),
        Split::train);
  });
  EXPECT_THAT(error.what(), HasSubstr("message_property_mappings maps 'transalted' to content"));
  EXPECT_THAT(error.what(), HasSubstr("they have content, role, translated"));
}

TEST_F(DataSources, EvaluationRowsMayHaveTheNamesThatTheProgramLooksFor) {
  Json settings{{"dataset_name", path("a.jsonl")},
                {"eval_dataset_name", path("b.csv")},
                {"column_mapping", {{"prompt", "q"}, {"completion", "{r}!"}}}};
  EXPECT_THAT(prompts(data_rows(config(settings), Split::train)), ElementsAre("1", "2", "3"));
  const RawRows evaluated = data_rows(config(settings), Split::evaluation);
  EXPECT_THAT(prompts(evaluated), ElementsAre("b one", "b two"));
  EXPECT_EQ(evaluated.parse(0)["completion"], "b");
  settings["eval_dataset_name"] = path("a.jsonl");
  EXPECT_EQ(data_rows(config(settings), Split::evaluation).parse(0)["completion"], "x!");
  settings["eval_dataset_name"] = path("c.jsonl");
  write_file(folder_ / "c.jsonl", "{\"question\":\"1\",\"r\":\"x\"}\n");
  EXPECT_THROW(data_rows(config(settings), Split::evaluation), Error) << "neither name";
  settings["dataset_name"] = path("b.csv");
  EXPECT_THROW(data_rows(config(settings), Split::train), Error) << "the mapping applies to these rows";

  write_file(folder_ / "ours.jsonl", R"({"messages": [{"role": "user", "content": "q"}]})");
  write_file(folder_ / "theirs.jsonl", R"({"messages": [{"who": "user", "content": "q"}]})");
  settings = {{"dataset_name", path("theirs.jsonl")},
              {"eval_dataset_name", path("ours.jsonl")},
              {"message_property_mappings", {{"role", "who"}}}};
  for (const Split split : {Split::train, Split::evaluation})
    EXPECT_EQ(data_rows(config(settings), split).parse(0)["messages"][0]["role"], "user");
}

TEST_F(DataSources, ASourceTakesOrReplacesTheMappingOfAll) {
  Json settings{{"dataset_mixture", {path("a.jsonl"), path("b.csv")}},
                {"column_mapping", {{"prompt", "q"}, {"completion", "r"}}}};
  EXPECT_THAT(prompts(data_rows(config(settings), Split::train)), ElementsAre("1", "2", "3", "b one", "b two"));
  write_file(folder_ / "both.jsonl", "{\"prompt\":\"own\",\"completion\":\"c\",\"q\":\"other\",\"r\":\"d\"}\n");
  for (const char* own : {R"({"prompt": "prompt"})", "{}"}) {
    settings["dataset_mixture"] =
        Json::array({{{"path", path("both.jsonl")}, {"column_mapping", parse_json(own, "")}}});
    EXPECT_THAT(prompts(data_rows(config(settings), Split::train)), ElementsAre("own")) << own;
  }
  settings["dataset_mixture"] = Json::array({{{"path", path("both.jsonl")}, {"column_mapping", nullptr}}});
  EXPECT_THAT(prompts(data_rows(config(settings), Split::train)), ElementsAre("other"));
}

TEST_F(DataSources, AMixtureIsMixedAndHeldOutFrom) {
  Json settings{{"dataset_mixture", Json::array({renamed(), path("b.csv")})}};
  EXPECT_THAT(prompts(data_rows(config(settings), Split::train)), ElementsAre("1", "2", "3", "b one", "b two"));
  EXPECT_EQ(describe_rows(data_rows(config(settings), Split::train), {}),
            "5 rows of prompt+completion in 1 csv file, 1 jsonl file");
  EXPECT_THAT(data_files(config(settings).data, Split::train),
              ElementsAre(ElementsAre(path("a.jsonl")), ElementsAre(path("b.csv"))));
  settings["mix_strategy"] = "first_exhausted";
  EXPECT_THAT(prompts(data_rows(config(settings), Split::train)), ElementsAre("1", "b one", "2", "b two"));
  settings["mix_strategy"] = "all_exhausted";
  settings["eval_split"] = 0.25;
  const std::vector<std::string> held = prompts(data_rows(config(settings), Split::evaluation));
  const std::vector<std::string> train = prompts(data_rows(config(settings), Split::train));
  EXPECT_EQ(held.size(), 2u) << "of each source";
  EXPECT_EQ(train.size(), 4u) << "the smaller source begins again";
  for (const std::string& row : held) EXPECT_THAT(train, ::testing::Not(::testing::Contains(row)));
}

TEST_F(DataSources, ContradictionsAreToldWithTheConfig) {
  const auto complaint = [&](const Json& settings) {
    return test::error_if_any(ErrorKind::usage, [&] { config(settings); });
  };
  const auto mixture = [](const char* entries) { return parse_json(entries, "entries"); };
  EXPECT_THAT(complaint({{"dataset_name", "a"}, {"dataset_mixture", mixture(R"(["b"])")}}),
              HasSubstr("keep one of them"));
  EXPECT_THAT(complaint({{"dataset_mixture", mixture(R"([{"path": "a", "wieght": 1}])")}}), HasSubstr("\"wieght\""));
  EXPECT_THAT(complaint({{"dataset_mixture", mixture(R"([{"path": "a", "weight": 1}, "b"])")}}),
              HasSubstr("give it to all"));
  EXPECT_THAT(
      complaint({{"dataset_mixture", mixture(R"([{"path": "a", "weight": 1}])")}, {"mix_strategy", "concatenate"}}),
      HasSubstr("no effect"));
  EXPECT_THAT(complaint({{"column_mapping", {{"prompt", 3}}}}), HasSubstr("column_mapping"));
  EXPECT_THAT(complaint({{"column_mapping", {{"promt", "q"}}}}), HasSubstr("'promt' is not a known column"));
  EXPECT_EQ(complaint({{"column_mapping", {{"body", "q"}}}, {"dataset_text_field", "body"}}), "no error");
  EXPECT_THAT(complaint({{"dataset_mixture", mixture(R"([{"path": "a", "column_mapping": {"question": "prompt"}}])")}}),
              HasSubstr("the wrong way around"));
}

}  // namespace
}  // namespace qtrain
