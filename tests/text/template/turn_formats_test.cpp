#include "text/template/turn_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/template/golden_support.h"
#include "text/template/named_templates.h"

namespace qtrain {
namespace {

class TurnFormats : public test::TemplateGolden {};

/// The pieces of the text that the assistant says.
Json answers_in(const Json& got) {
  Json answers = Json::array();
  const std::string text = got["text"].get<std::string>();
  for (const Json& range : got["generated"]) {
    const std::size_t begin = range[0], end = range[1];
    answers.push_back(text.substr(begin, end - begin));
  }
  return answers;
}

// The goldens are what the tables of those tools themselves give.
TEST_F(TurnFormats, AreThoseOfTheToolsThatNameThem) {
  const std::vector<Json> rows = test::read_rows(test::kTemplateGoldens / "turn_formats.jsonl");
  ASSERT_GT(rows.size(), 100u);
  for (const Json& row : rows) {
    const std::string source = find_named_template(row["name"].get<std::string>());
    ASSERT_FALSE(source.empty()) << row["name"];
    const Json got = test::outcome(source, {{"messages", row["messages"]}});
    ASSERT_TRUE(got.contains("text")) << row["name"] << got;
    EXPECT_EQ(got["text"], row["text"]) << row["name"] << " " << row["case"];
    const Json answers = row.value("answers", answers_in(got));
    EXPECT_EQ(answers_in(got), answers) << row["name"] << " " << row["case"];
  }
}

TEST_F(TurnFormats, RefuseWhatTheyHaveNoPlaceFor) {
  const Json tool = {{"role", "tool"}, {"content", "r"}}, question = {{"role", "user"}, {"content", "q"}};
  const Json late = {{"role", "system"}, {"content", "s"}};
  for (const Json& messages : {Json{question, tool}, Json{question, late}})
    EXPECT_TRUE(test::outcome(find_named_template("llamafactory_qwen"), {{"messages", messages}}).contains("error"))
        << messages;
  EXPECT_EQ(find_turn_format("llamafactory_of_nobody"), "");
}

}  // namespace
}  // namespace qtrain
