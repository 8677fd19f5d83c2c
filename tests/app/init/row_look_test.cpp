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

TEST(InitRows, ReadTheirSystemPromptsWithoutAChatTemplateToo) {
  EXPECT_EQ(names_of_unread(look_at(R"({"instruction": "a", "system": "s", "history": [["b", "c"]], "output": "d"})",
                                    ChatTemplates::none)),
            "");
  EXPECT_EQ(names_of_unread(look_at(R"({"prompt": "a", "system": "s", "completion": "d"})", ChatTemplates::none)),
            "the column system is not read");
}

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
           // Names that mean a question only where nothing else does.
           {R"({"user": "bob", "input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"human": "x", "input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"request": "x", "input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"q": "x", "input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"ask": "x", "input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"prompt": "x", "input": "a", "output": "b"})", "input+output", RowShape::chat_pair, "{}"},
           {R"({"user": "bob", "input": "a", "response": "b"})", "input+output", RowShape::chat_pair,
            R"({"column_mapping": {"output": "response"}})"},
           {R"({"user": "a", "assistant": "b"})", "instruction+output", RowShape::chat_pair,
            R"({"column_mapping": {"instruction": "user", "output": "assistant"}})"},
           // A conversation next to what the shape reads, or one that has no roles.
           {R"({"instruction": "a", "output": "b", "conversation": [{"speaker": "x", "text": "y"}]})",
            "instruction+output", RowShape::chat_pair, "{}"},
           {R"({"instruction": "a", "output": "b", "turns": [{"role": "user", "content": "y"}]})", "instruction+output",
            RowShape::chat_pair, "{}"},
           {R"({"input": "a", "output": "b", "dialog": [{"role": "user", "content": "y"}]})", "input+output",
            RowShape::chat_pair, "{}"},
           {R"({"question": "a", "answer": "b", "turns": [{"speaker": "x", "text": "y"}]})", "instruction+output",
            RowShape::chat_pair, R"({"column_mapping": {"instruction": "question", "output": "answer"}})"},
           {R"({"chat": "c1", "turns": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
            "messages", RowShape::chat, R"({"column_mapping": {"messages": "turns"}})"},
           {R"({"text": "a b", "conversation": [{"role": "user", "content": "a"}]})", "messages", RowShape::chat,
            R"x({"column_mapping": {"messages": "conversation"}, "dataset_text_field": "(none)"})x"},
           {R"({"text": "a", "turns": [{"speaker": "x", "text": "y"}]})", "text", RowShape::text, "{}"},
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
  }
}

TEST(InitRows, AreReadFromTheGivenColumnOfTexts) {
  for (const char* row : {R"({"text": "a b", "question": "a", "answer": "b"})",
                          R"({"text": "a", "turns": [{"role": "user", "content": "a"}]})", R"({"text": "a"})"}) {
    const RowLook look = look_at_row(parse_json(row, "row"), ChatTemplates::some, "text");
    EXPECT_EQ(look.shape, RowShape::text) << row;
    EXPECT_EQ(look.settings, (Json{{"dataset_text_field", "text"}})) << row;
  }
  const RowLook body =
      look_at_row(parse_json(R"({"question": "a", "answer": "b", "body": "c"})", "row"), ChatTemplates::some, "body");
  EXPECT_EQ(body.shape, RowShape::text);
  EXPECT_EQ(names_of_unread(body), "the columns question, answer are not read");
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
  for (
      const auto& [row, prompt] : std::vector<Read>{
          {R"({"instruction": "do", "question": "q", "answer": "OUT"})", {"do\nq"}},
          {R"({"input": "i", "question": "q", "answer": "OUT"})", {"q\ni"}},
          {R"({"Instruction": "do", "Input": "i", "Output": "OUT"})", {"do\ni"}},
          {R"({"instruction": "do", "context": "c", "response": "OUT", "category": "qa"})", {"do\nc"}},
          {R"({"instruction": "do", "context": "c", "output": "OUT"})", {"do\nc"}},
          {R"({"question": "q", "context": "c", "answer": "OUT", "id": "x1"})", {"q\nc"}},
          {R"({"input": "q", "context": "c", "output": "OUT"})", {"q\nc"}},
          {R"({"input": "q", "system": "s", "output": "OUT"})", {"s", "q"}},
          {R"({"id": "1", "system_prompt": "s", "question": "q", "response": "OUT"})", {"s", "q"}},
          {R"({"system_prompt": "s", "prompt": "q", "completion": "OUT"})", {"s", "q"}},
          {R"({"instruction": "do", "input": "", "context": "c", "output": "OUT"})", {"do\nc"}},
          {R"({"instruction": "do", "input": null, "context": "c", "output": "OUT"})", {"do\nc"}},
          {R"({"input": "i", "query": "q", "output": "OUT"})", {"q\ni"}},
          {R"({"prompt": "q", "context": "c", "completion": "OUT"})", {"q\nc"}},
          {R"({"prompt": "of a context of some length: q", "context": "a context of some length", "completion": "OUT"})",
           {"of a context of some length: q"}},
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
  for (
      const auto& [row, said] : std::vector<Unread>{
          {R"({"question": "q", "choices": ["a", "b"], "answer": "a"})", "the column choices is not read"},
          {R"({"problem": "p", "solution": "s", "answer": "a"})", "the column answer is not read"},
          {R"({"question": "q", "answer": "b", "text": "of another kind"})", "the column text is not read"},
          {R"({"document": "d", "summary": "s"})", "the column summary is not read"},
          {R"({"title": "t", "body": "b"})", "the column title is not read"},
          {R"({"text": "t", "label": 1})", "the column label is not read"},
          {R"({"user": "bob", "input": "a", "output": "b"})", "the column user is not read"},
          {R"({"question": "q", "context": {"title": ["t"]}, "answer": "a"})", "the column context is not read"},
          {R"({"question": "q", "facts": [["t"], ["u"]], "answer": "a"})", "the column facts is not read"},
          {R"({"text": "a", "conversation": [{"speaker": "x", "text": "y"}]})", "the column conversation is not read"},
          {R"({"instruction": "a", "input": "i", "context": "c", "output": "b"})", "the column context is not read"},
          {R"({"text": "t", "vector": [0.5, 1], "counts": {"n": 1}, "meta": {"by": "x"}})", ""},
          {R"({"input": "a", "output": "b", "tools": [{"name": "f"}]})", ""},
          {R"({"messages": [{"role": "user", "content": "a"}], "prompt": "a", "prompt_id": "f00"})", ""},
          {R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}], "t": "u:one a:two"})",
           ""},
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

// Rows with an input and others with a context: as much as possible is read, and the rest is named.
TEST(InitRows, AreReadSoThatMostIsRead) {
  struct Mixed {
    const char* rows;
    const char* settings;
    const char* unread;
  };
  for (const auto& [rows, settings, unread] :
       std::vector<Mixed>{{R"({"instruction": "a", "input": "i", "output": "b"}
{"instruction": "a", "context": "c", "output": "b"})",
                           R"({"column_mapping": {"input": "context"}})", ""},
                          {R"({"instruction": "a", "input": "", "context": "c", "output": "b"}
{"instruction": "a", "input": "i", "context": "", "output": "b"}
{"instruction": "a", "input": "i", "context": "", "output": "b"})",
                           "{}", "the column context is not read"},
                          {R"({"instruction": "a", "input": "i", "context": "", "output": "b"}
{"instruction": "a", "input": "", "context": "c", "output": "b"}
{"instruction": "a", "input": "", "context": "c", "output": "b"})",
                           R"({"column_mapping": {"input": "context"}})", "the column input is not read"},
                          {R"({"input": "a", "output": "b"}
{"input": "a", "context": "c", "output": "b"})",
                           R"({"column_mapping": {"instruction": "input", "input": "context"}})", ""},
                          {R"({"question": "a", "answer": "b"}
{"query": "a", "answer": "b"}
{"query": "a", "answer": "b"})",
                           R"({"column_mapping": {"instruction": "query", "output": "answer"}})", ""}}) {
    const testing::TempFolder folder;
    const RowLook look = look_at_rows(raw_rows(folder, std::string(rows) + "\n"), ChatTemplates::some);
    EXPECT_EQ(look.settings, parse_json(settings, "settings")) << rows;
    EXPECT_EQ(names_of_unread(look), unread) << rows;
  }
}

TEST(InitRows, SayHowTheyAreChosen) {
  EXPECT_EQ(reason_of("column_mapping", {{"instruction", "Frage"}, {"output", "Antwort"}}),
            "by the names of the columns: Frage as instruction, Antwort as output");
  EXPECT_THAT(reason_of("column_mapping", {{"instruction", "prompt"}, {"output", "completion"}}),
              HasSubstr("chat template"));
  EXPECT_EQ(reason_of("dataset_text_field", "Body"), "by the names of the columns");
  EXPECT_THAT(reason_of("dataset_text_field", "(none)"), HasSubstr("text is not read"));
}

// A mapping has to hold for one of the first 1,000 rows.
TEST(InitRows, AreReadWithoutColumnsThatComeLate) {
  const testing::TempFolder folder;
  std::string lines;
  for (int i = 0; i < 1'200; ++i)
    lines += i < 1'100 ? "{\"instruction\": \"a\", \"response\": \"b\"}\n"
                       : "{\"instruction\": \"a\", \"context\": \"c\", \"response\": \"b\"}\n";
  const RowLook look = look_at_rows(raw_rows(folder, lines), ChatTemplates::some);
  EXPECT_EQ(look.settings, (Json{{"column_mapping", {{"output", "response"}}}}));
  EXPECT_EQ(names_of_unread(look), "the column context is not read");
}

TEST(InitRows, WarnOfRowsThatTheSettingsDoNotRead) {
  const testing::TempFolder folder;
  const RowLook look = look_at_rows(raw_rows(folder, R"({"question": "a", "answer": "b"}
{"question": "a", "answer": "b"}
{"query": "a", "response": "b"}
)"),
                                    ChatTemplates::some);
  EXPECT_THAT(look.warnings, ElementsAre(HasSubstr("2 have the shape instruction+output, but 1 of no known one")));
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
