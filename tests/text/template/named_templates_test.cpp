#include "text/template/named_templates.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/os/file.h"
#include "tests/text/template/golden_support.h"

namespace qtrain {
namespace {

class NamedTemplates : public test::TemplateGolden {};

TEST_F(NamedTemplates, SayWhatModelsOwnDo) {
  const Json conversations = read_json(test::kTemplateGoldens / "conversations.json");
  const std::vector<Json> rows = test::read_rows(test::kTemplateGoldens / "named.jsonl");
  ASSERT_GT(rows.size(), 20u);
  for (const Json& row : rows) {
    const std::string source = find_named_template(row["name"].get<std::string>());
    EXPECT_EQ(test::outcome(source, conversations.at(row["case"].get<std::string>()))["text"], row["text"]) << row;
  }
}

TEST_F(NamedTemplates, MarkWhatTheAssistantSays) {
  const Json input = parse_json(
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a1"},
                      {"role":"user","content":"q"},{"role":"assistant","content":"a2"}]})",
      "input");
  for (const std::string_view name : template_names()) {
    const Json got = test::outcome(find_named_template(name), input);
    ASSERT_EQ(got["generated"].size(), 2u) << name << got;
    for (std::size_t turn = 0; turn < 2; ++turn) {
      const std::size_t begin = got["generated"][turn][0], end = got["generated"][turn][1];
      const std::string said = got["text"].get<std::string>().substr(begin, end - begin);
      EXPECT_EQ(said.find("a" + std::to_string(turn + 1)), said.starts_with(' ') ? 1 : 0) << name << got;
      EXPECT_GT(said.size(), 2u) << name << ": the end of the turn is missing";
    }
  }
}

TEST_F(NamedTemplates, RefuseToolsInsteadOfLeavingThemOut) {
  const Json conversations = read_json(test::kTemplateGoldens / "conversations.json");
  for (const std::string_view name : template_names())
    for (const char* of : {"tools", "tool_turns", "null_content"})
      EXPECT_TRUE(test::outcome(find_named_template(name), conversations.at(of)).contains("error"))
          << name << " " << of;
}

}  // namespace
}  // namespace qtrain
