// How `qtrain init` recognizes rows.
#include "app/init/row_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/file.h"
#include "data/source/columns.h"
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
           {R"({"Text": "a"})", "text", RowShape::text, R"({"dataset_text_field": "Text"})"},
           {R"({"Messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})", "messages",
            RowShape::chat, R"({"column_mapping": {"messages": "Messages"}})"},
           {R"({"Conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})", "messages",
            RowShape::chat, R"({"column_mapping": {"messages": "Conversations"}})"},
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

// What the columns of a row become: its prompt and what is learned.
TEST(InitRows, LoseNoColumnOfAQuestion) {
  struct Read {
    const char* row;
    std::vector<std::string> prompt;
  };
  for (const auto& [row, prompt] :
       std::vector<Read>{{R"({"instruction": "do", "question": "q", "answer": "OUT"})", {"do\nq"}},
                         {R"({"input": "i", "question": "q", "answer": "OUT"})", {"q\ni"}},
                         {R"({"Instruction": "do", "Input": "i", "Output": "OUT"})", {"do\ni"}},
                         {R"({"instruction": "do", "context": "c", "response": "OUT", "category": "qa"})", {"do\nc"}},
                         {R"({"instruction": "do", "context": "c", "output": "OUT"})", {"do\nc"}},
                         {R"({"question": "q", "context": "c", "answer": "OUT", "id": "x1"})", {"q\nc"}},
                         {R"({"input": "q", "context": "c", "output": "OUT"})", {"q\nc"}},
                         {R"({"input": "q", "system": "s", "output": "OUT"})", {"s", "q"}},
                         {R"({"id": "1", "system_prompt": "s", "question": "q", "response": "OUT"})", {"s", "q"}},
                         {R"({"system_prompt": "s", "prompt": "q", "completion": "OUT"})", {"s", "q"}},
                         {R"({"text": "t q OUT", "question": "q", "answer": "OUT"})", {"q"}}}) {
    const Json parsed = parse_json(row, "row");
    const RowLook look = look_at_row(parsed, ChatTemplates::some);
    const Sample sample = read_sample(read_column_map(look.settings).renamed(parsed),
                                      {.text_field = look.settings.value("dataset_text_field", "text")});
    std::vector<std::string> read;
    for (const Json& message : sample.messages) read.push_back(message.at("content"));
    EXPECT_EQ(read, prompt) << row;
    ASSERT_THAT(sample.completion, SizeIs(1)) << row;
    EXPECT_EQ(sample.completion[0].at("content"), "OUT") << row;
    EXPECT_EQ(names_of_unread(look), "") << row;
  }
}

TEST(InitRows, GiveConversationsTheirSystemPrompt) {
  const RowLook look = look_at(R"({"system_prompt": "s", "messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(look.settings, (Json{{"column_mapping", {{"system", "system_prompt"}}}}));
}

TEST(InitRows, SayWhichColumnsAreNotRead) {
  struct Unread {
    const char* row;
    const char* said;
  };
  for (const auto& [row, said] : std::vector<Unread>{
           {R"({"question": "q", "choices": ["a", "b"], "answer": "a"})", "the column choices is not read"},
           {R"({"problem": "p", "solution": "s", "answer": "a"})", "the column answer is not read"},
           {R"({"question": "q", "answer": "b", "text": "of another kind"})", "the column text is not read"},
           {R"({"document": "d", "summary": "s"})", "the column summary is not read"},
           {R"({"title": "t", "body": "b"})", "the column title is not read"},
           {R"({"text": "t", "label": 1})", "the column label is not read"},
           {R"({"text": "t", "id": "a1", "url": "u", "score": 3, "user_id": "x", "number": "12"})", ""},
           {R"({"text": "t", "b\n\"learning_rate\": 9": "c", "d": "e"})",
            R"(the columns b\n"learning_rate": 9, d are not read)"},
           {R"({"text": "t", "a": "a", "b": "b", "c": "c", "d": "d", "e": "e", "f": "f", "g": "g", "h": "h"})",
            "the columns a, b, c, d, e, f and 2 more are not read"}})
    EXPECT_EQ(names_of_unread(look_at(row)), said) << row;
}

RawRows raw_rows(const testing::TempFolder& folder, const std::string& lines) {
  write_file(folder / "rows.jsonl", lines);
  return RawRows({folder / "rows.jsonl"});
}

TEST(InitRows, AreReadAsMostOfThemAre) {
  const testing::TempFolder folder;
  std::string lines = "{\"text\": \"a\"}\n";
  for (int i = 0; i < 20; ++i) lines += "{\"instruction\": \"a\", \"output\": \"b\"}\n";
  const RowLook look = look_at_rows(raw_rows(folder, lines), ChatTemplates::some);
  EXPECT_EQ(look.shape, RowShape::chat_pair);
  EXPECT_THAT(look.warnings, ElementsAre(HasSubstr("20 have the shape instruction+output, but 1 of text")));
}

TEST(InitRows, AreReadWithTheColumnsOfAllOfThem) {
  const testing::TempFolder folder;
  const RowLook look = look_at_rows(raw_rows(folder, R"({"instruction": "a", "response": "b"})"
                                                     "\n"
                                                     R"({"instruction": "a", "context": "c", "response": "b"})"
                                                     "\n"
                                                     R"({"instruction": "a", "response": "b", "hint": "d"})"
                                                     "\n"),
                                    ChatTemplates::some);
  EXPECT_EQ(look.settings, (Json{{"column_mapping", {{"output", "response"}, {"input", "context"}}}}));
  EXPECT_EQ(names_of_unread(look), "the column hint is not read");
  EXPECT_THAT(look.warnings, IsEmpty());
}

TEST(InitRows, AreRefusedIfNoneCanBeRead) {
  const testing::TempFolder folder;
  const RawRows rows = raw_rows(folder, "{\"x\": 1}\n{\"y\": 1}\n");
  EXPECT_THAT(test::error_if_any(ErrorKind::input, [&] { look_at_rows(rows, ChatTemplates::some); }),
              HasSubstr("unknown row shape"));
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
