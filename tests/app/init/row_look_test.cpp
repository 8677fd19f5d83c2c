// How `qtrain init` recognizes rows.
#include "app/init/row_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain::init {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RowLook look_at(const char* row, ChatTemplates templates = ChatTemplates::some) {
  return look_at_row(parse_json(row, "row"), templates);
}

struct Seen {
  const char* row;
  const char* name;
  RowShape shape;
  const char* settings;
};

TEST(InitRows, AreReadInEveryShape) {
  for (const Seen& seen : std::vector<Seen>{
           {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})", "messages",
            RowShape::chat, "{}"},
           {R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})", "conversations",
            RowShape::chat, "{}"},
           {R"({"instruction": "a", "input": "", "output": "b"})", "instruction+output", RowShape::chat_pair, "{}"},
           {R"({"instruction": "a", "output": "b", "text": "a b"})", "instruction+output", RowShape::chat_pair,
            R"x({"dataset_text_field": "(none)"})x"},
           {R"({"input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"Question": "a", "Answer": "b", "id": 1})", "instruction+output", RowShape::chat_pair,
            R"({"column_mapping": {"instruction": "Question", "output": "Answer"}})"},
           {R"({"input": "a", "response": "b"})", "input+output", RowShape::chat_pair,
            R"({"column_mapping": {"output": "response"}})"},
           {R"({"dialogue": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})", "messages",
            RowShape::chat, R"({"column_mapping": {"messages": "dialogue"}})"},
           {R"({"prompt": "a", "completion": "b"})", "instruction+output", RowShape::chat_pair,
            R"({"column_mapping": {"instruction": "prompt", "output": "completion"}})"},
           {R"({"text": "a"})", "text", RowShape::text, "{}"},
           {R"({"Document": "a"})", "text", RowShape::text, R"({"dataset_text_field": "Document"})"},
           {R"({"input_ids": [1, 2]})", "input_ids", RowShape::tokens, "{}"}}) {
    const RowLook look = look_at(seen.row);
    EXPECT_EQ(look.name, seen.name) << seen.row;
    EXPECT_EQ(look.shape, seen.shape) << seen.row;
    EXPECT_EQ(look.settings, parse_json(seen.settings, "settings")) << seen.row;
    EXPECT_EQ(look.settings.empty(), look.reason.empty()) << seen.row;
  }
}

TEST(InitRows, AreJoinedTextsWithoutAChatTemplate) {
  const RowLook look = look_at(R"({"prompt": "a", "completion": "b"})", ChatTemplates::none);
  EXPECT_EQ(look.shape, RowShape::text_pair);
  EXPECT_THAT(look.settings, IsEmpty());
}

TEST(InitRows, OfNoKnownShapeAreRefusedWithTheirColumns) {
  EXPECT_THAT(test::error_if_any(ErrorKind::input, [] { look_at(R"({"x\ny": "a", "z": 1})"); }),
              HasSubstr("unknown row shape"));
}

TEST(InitRows, NameTheirColumnsOnOneLine) {
  EXPECT_THAT(look_at(R"({"text": "a", "b\n\"learning_rate\": 9": 1})").columns,
              ElementsAre("text", "b\\n\"learning_rate\": 9"));
}

RawRows raw_rows(const testing::TempFolder& folder, const std::string& lines) {
  write_file(folder / "rows.jsonl", lines);
  return RawRows({folder / "rows.jsonl"});
}

TEST(InitRows, AreSpreadOverTheFile) {
  const testing::TempFolder folder;
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"text\": \"" + std::to_string(i) + "\"}\n";
  const RawRows rows = raw_rows(folder, lines);
  EXPECT_EQ(spread_rows(rows, 20).size(), 10);
  const RawRows few = spread_rows(rows, 3);
  ASSERT_EQ(few.size(), 3);
  EXPECT_EQ(few.parse(0).at("text"), "0");
  EXPECT_EQ(few.parse(2).at("text"), "6");
}

TEST(InitRows, GiveQuestionsThatATextExpresses) {
  const testing::TempFolder folder;
  const std::string long_one(300, 'x');
  const RawRows rows =
      raw_rows(folder, R"({"instruction": "first", "output": "a"})"
                       "\n"
                       R"({"instruction": "first", "output": "b"})"
                       "\n"
                       R"({"instruction": ")" +
                           long_one +
                           R"(", "output": "c"})"
                           "\n"
                           R"({"instruction": "see a.txt", "output": "d"})"
                           "\n"
                           R"({"system": "be brief", "instruction": "with a system message", "output": "e"})"
                           "\n"
                           R"({"instruction": "second", "output": "f"})"
                           "\n"
                           R"({"instruction": "third", "output": "g"})"
                           "\n");
  EXPECT_THAT(short_questions(rows, {}, 2), ElementsAre("first", "second"));
  EXPECT_THAT(short_questions(raw_rows(folder, "{\"text\": \"a\"}\n"), {}, 2), IsEmpty());
}

}  // namespace
}  // namespace qtrain::init
