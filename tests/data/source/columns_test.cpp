#include "data/source/columns.h"

#include <gmock/gmock.h>

#include "data/row_shapes.h"
#include "data/source/mixture.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json renamed(const char* settings, const char* row) {
  return read_column_map(parse_json(settings, "settings")).renamed(parse_json(row, "row"));
}

TEST(Columns, TakeTheNamesThatTheProgramLooksFor) {
  EXPECT_EQ(dump_json(renamed(R"({"column_mapping": {"prompt": "question", "completion": "answer"}})",
                              R"({"id": 1, "question": "q", "answer": "a", "prompt": "other"})")),
            R"({"id": 1, "prompt": "q", "completion": "a"})");
  EXPECT_EQ(dump_json(renamed(R"({"column_mapping": {"input": "output", "output": "input"}})",
                              R"({"input": 1, "output": 2})")),
            R"({"output": 1, "input": 2})");
  EXPECT_EQ(dump_json(renamed(R"({"column_mapping": {"text": "body"}})", R"({"text": "t"})")), R"({"text": "t"})");
}

TEST(Columns, MessagesUnderOtherNamesAreAConversation) {
  const Json row = renamed(R"({"column_mapping": {"messages": "dialogue"},
                               "message_property_mappings": {"role": "speaker", "content": "words"},
                               "role_mapping": {"user": "customer", "assistant": ["bot", "agent"]}})",
                           R"({"dialogue": [{"speaker": "customer", "words": "q", "at": 3},
                                            {"speaker": "agent", "words": "a"}, {"speaker": "system", "words": "s"}]})");
  const Sample sample = read_sample(row, {});
  EXPECT_EQ(sample.shape, RowShape::chat);
  EXPECT_EQ(dump_json(sample.messages), R"([{"role": "user", "content": "q", "at": 3}, {"role": "assistant", )"
                                        R"("content": "a"}, {"role": "system", "content": "s"}])");
  const Json share =
      renamed(R"({"role_mapping": {"assistant": "llama"}})",
              R"({"conversations": [{"from": "human", "value": "q"}, {"from": "llama", "value": "a"}]})");
  EXPECT_EQ(read_sample(share, {}).messages[1]["role"], "assistant");
}

TEST(Columns, MapsThatSayTwoThingsAreRefused) {
  for (const char* settings :
       {R"({"column_mapping": {"prompt": "a", "text": "a"}})", R"({"column_mapping": {"prompt": 3}})",
        R"({"column_mapping": ["prompt"]})", R"({"role_mapping": {"user": "x", "assistant": ["x"]}})"})
    EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { read_column_map(parse_json(settings, "s")); }),
                HasSubstr("_mapping"))
        << settings;
}

TEST(Columns, TextsAreMadeOfSeveralColumns) {
  constexpr const char* kTwo =
      R"({"column_mapping": {"prompt": ["{title}: {question} #{n}", "{question}"], "completion": "a"}})";
  EXPECT_EQ(dump_json(renamed(kTwo, R"({"title": "t", "question": "q", "n": 1.5, "a": "x", "prompt": "old"})")),
            R"({"title": "t", "question": "q", "n": 1.5, "completion": "x", "prompt": "t: q #1.5"})");
  for (const char* row : {R"({"title": "", "question": "q", "n": 1})", R"({"question": "q", "n": 1})"})
    EXPECT_EQ(renamed(kTwo, row)["prompt"], "q") << row;
  EXPECT_EQ(
      renamed(R"({"column_mapping": {"text": "{{{a}}} {b}", "prompt": "c"}})", R"({"a": "{b}", "b": ""})")["text"],
      "{{b}} ");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { renamed(kTwo, R"({"title": "t"})"); }),
              HasSubstr("the row does not have all of question, which 'prompt' is built from"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { renamed(kTwo, R"({"question": [1]})"); }),
              HasSubstr("column 'question' is not text but array"));
  for (const char* text : {"{a", "a}", "{}", "{a{b}}", "{a!r}", "{0.x}"})
    EXPECT_THAT(test::error_of(ErrorKind::usage,
                               [&] {
                                 read_column_map({{"column_mapping", {{"prompt", text}}}});
                               }),
                HasSubstr("Put column names in braces"))
        << text;
}

TEST(Columns, AMapWrittenTheWrongWayRoundIsNamed) {
  const auto complaint = [](const char* settings) {
    return test::error_of(ErrorKind::usage, [&] { read_column_map(parse_json(settings, "s")); });
  };
  EXPECT_THAT(complaint(R"({"column_mapping": {"question": "prompt", "answer": "completion"}})"),
              HasSubstr(R"(the wrong way around: 'answer' is a name in the rows
  Put our name first: {"prompt": "question", "completion": "answer"})"));
  EXPECT_THAT(complaint(R"({"message_property_mappings": {"speaker": "role"}})"), HasSubstr(R"({"role": "speaker"})"));
  EXPECT_THAT(complaint(R"({"role_mapping": {"gpt": ["assistant"]}})"), HasSubstr(R"({"assistant": "gpt"})"));
  EXPECT_THAT(complaint(R"({"role_mapping": {"model": "assistant"}})"),
              HasSubstr(R"(or, if this is intended, add an unchanged name: {"assistant": "assistant"})"));
}

TEST(Columns, NamesOfTheTemplatesOwnAreMeantBesideKnownOnes) {
  const ColumnMap map = read_column_map(parse_json(R"({"role_mapping": {"user": "user", "critic": "tool"},
      "message_property_mappings": {"content": "text", "speaker": "name"}})",
                                                   "s"));
  EXPECT_EQ(map.roles, (std::map<std::string, std::string>{{"user", "user"}, {"tool", "critic"}}));
  EXPECT_EQ(map.message_keys, (std::map<std::string, std::string>{{"content", "text"}, {"speaker", "name"}}));
}

class MixedFiles : public test::DataFolder {
 protected:
  RawRows mixed(const char* entries, std::optional<MixStrategy> strategy = {}) const {
    std::vector<DataSource> sources;
    const Json list = parse_json(entries, "datasets");
    for (Json entry : list) {
      entry["path"] = at(entry["path"]);
      sources.push_back(read_data_source(entry, {}));
    }
    return mixed_rows(source_rows(sources, source_files(sources, Split::train)),
                      {.sources = sources, .strategy = strategy});
  }
  static std::vector<int> values(const RawRows& rows) {
    std::vector<int> out;
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const Json value = rows.parse(i)["n"];
      out.push_back(value.is_string() ? std::stoi(value.get<std::string>()) : value.get<int>());
    }
    return out;
  }
  void SetUp() override {
    DataFolder::SetUp();
    write("a/train.jsonl", "{\"n\":1,\"x\":0}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n");
    write("a/test.jsonl", "{\"n\":9}\n");
    write("b.csv", "m\n10\n20\n");
  }
};

TEST_F(MixedFiles, AreReadEachWithItsOwnColumnsAndSplit) {
  const char* both = R"([{"path": "a"}, {"path": "b.csv", "column_mapping": {"n": "m"}}])";
  EXPECT_THAT(values(mixed(both)), ElementsAre(1, 2, 3, 4, 10, 20));
  EXPECT_THAT(values(mixed(both, MixStrategy::first_exhausted)), ElementsAre(1, 10, 2, 20));
  EXPECT_THAT(values(mixed(both, MixStrategy::all_exhausted)), ElementsAre(1, 10, 2, 20, 3, 10, 4, 20));
  EXPECT_THAT(values(mixed(R"([{"path": "a", "split": "test"}])")), ElementsAre(9));
  EXPECT_FALSE(mixed(R"([{"path": "a", "columns": ["n"]}])").parse(0).contains("x"));
}

TEST_F(MixedFiles, FractionsAreSharesOfTheLargestMixtureWithoutRepetition) {
  EXPECT_EQ(fraction_sizes({4, 2}, {0.5, 0.5}), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(fraction_sizes({4, 2}, {3, 1}), (std::vector<std::int64_t>{4, 1}));
  EXPECT_EQ(fraction_sizes({100, 10, 7}, {0.8, 0.2, 0}), (std::vector<std::int64_t>{40, 10, 0}));
  EXPECT_THAT(values(mixed(R"([{"path": "a", "fraction": 1},
                               {"path": "b.csv", "fraction": 1, "column_mapping": {"n": "m"}}])")),
              ElementsAre(1, 2, 10, 20));
}

TEST_F(MixedFiles, WeightsInterleave) {
  const RawRows rows = mixed(R"([{"path": "a", "weight": 1}, {"path": "b.csv", "weight": 0, "columns": ["m"]}])");
  EXPECT_THAT(values(rows), ElementsAre(1, 2, 3, 4));
}

TEST_F(MixedFiles, WrongEntriesSayWhatIsWrong) {
  for (const auto& [entry, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"path": "a", "weigth": 1})", "weigth"},
           {R"({"path": "a", "weight": -1})", "weight"},
           {R"({"path": "a", "split": "train[:10%"})", "train[:10%"},
           {R"({"split": "train"})", "path"},
           {R"({"path": 3})", "path"},
           {"7", "neither a path nor an object"}})
    EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { read_data_source(parse_json(entry, "e"), {}); }),
                HasSubstr(what))
        << entry;
}

}  // namespace
}  // namespace qtrain
