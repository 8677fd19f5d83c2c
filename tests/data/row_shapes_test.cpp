#include "data/row_shapes.h"

#include <gmock/gmock.h>

#include "data/broken_turns.h"
#include "data/prompts.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Sample read(std::string_view json, const ShapeRules& rules = {}) {
  return read_sample(parse_json(json, "row"), rules);
}

TEST(Shapes, EachShapeIsRecognizedAndNullKeysCountAsAbsent) {
  const std::pair<const char*, RowShape> rows[] = {
      {R"({"messages":[{"role":"user","content":"a"}],"prompt":"unused","text":"t"})", RowShape::chat},
      {R"({"messages":null,"text":"t"})", RowShape::text},
      {R"({"prompt":"a","completion":"b","messages":null})", RowShape::text_pair},
      {R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"b"}]})",
       RowShape::chat_pair},
      {R"({"prompt":"a","completion":[{"role":"assistant","content":"b"}]})", RowShape::chat_pair},
      {R"({"input_ids":[1,2],"text":"t"})", RowShape::tokens},
      {R"({"conversations":[{"from":"human","value":"a"}]})", RowShape::chat},
      {R"({"instruction":"a","input":"","output":"b"})", RowShape::chat_pair},
      {R"({"input":"a","output":"b"})", RowShape::chat_pair},
  };
  for (const auto& [json, shape] : rows) EXPECT_EQ(read(json).shape, shape) << json;
  EXPECT_EQ(read(R"({"instruction":"a","output":"b"})", {.chat_template = false}).shape, RowShape::text_pair);
  EXPECT_EQ(read(R"({"body":"b"})", {.text_field = "body"}).text, "b");
}

TEST(Shapes, ShareGptSpeakersBecomeTheRolesOfTemplates) {
  const Sample s = read(R"({"system":"Be brief.","tools":"[{\"name\":\"f\"}]","conversations":[
      {"from":"human","value":"q"}, {"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"},
      {"from":"observation","value":"42"}, {"from":"gpt","value":"a"}]})");
  std::vector<std::string> roles;
  for (const Json& m : s.messages) roles.push_back(m["role"]);
  EXPECT_THAT(roles, ElementsAre("system", "user", "assistant", "tool", "assistant"));
  EXPECT_EQ(s.messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(s.messages[4]["content"], "a");
  EXPECT_EQ(s.tools[0]["name"], "f");
}

TEST(Shapes, AlpacaRowsKeepInputSystemAndHistory) {
  const Sample s = read(R"({"instruction":"i","input":"x","output":"o","system":"s","history":[["q1","a1"]]})");
  EXPECT_EQ(s.messages.size(), 4u);
  EXPECT_EQ(s.messages[0]["content"], "s");
  EXPECT_EQ(s.messages[2]["content"], "a1");
  EXPECT_EQ(s.messages[3]["content"], "i\nx");
  EXPECT_EQ(s.completion[0]["content"], "o");
}

std::string told(const Json& messages) {
  std::string out;
  for (const Json& m : messages) out += m["role"].get<std::string>() + ":" + m["content"].get<std::string>() + "|";
  return out;
}

TEST(Shapes, ASystemColumnBeginsAConversationOfAnyShape) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"messages":[{"role":"user","content":"q"}],"system":"s"})", "system:s|user:q|"},
      {R"({"messages":[{"from":"human","value":"q"}],"system":"s"})", "system:s|user:q|"},
      {R"({"conversations":[{"from":"human","value":"q"}],"system":"s"})", "system:s|user:q|"},
      {R"({"conversations":[{"role":"user","content":"q"}],"system":"s"})", "system:s|user:q|"},
      {R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}],"system":"s"})",
       "system:s|user:q|"},
      {R"({"instruction":"q","output":"a","system":"s"})", "system:s|user:q|"},
      {R"({"messages":[{"role":"system","content":"own"},{"role":"user","content":"q"}],"system":"s"})",
       "system:own|user:q|"},
      {R"({"messages":[{"role":"user","content":"q"}],"system":""})", "user:q|"},
      {R"({"messages":[{"role":"user","content":"q"}],"system":null})", "user:q|"},
  };
  for (const auto& [json, messages] : rows) EXPECT_EQ(told(read(json).messages), messages) << json;
  EXPECT_THAT(test::error_of(ErrorKind::input,
                             [] { read(R"({"messages":[{"role":"user","content":"q"}],"system":{"text":"s"}})"); }),
              HasSubstr("'system' is not a string"));
}

TEST(Shapes, WithoutATemplateSystemAndHistoryStandBeforeTheQuestion) {
  const Sample s = read(R"({"instruction":"i","input":"x","output":"o","system":"s","history":[["q1","a1"]]})",
                        {.chat_template = false});
  EXPECT_EQ(s.prompt, "s\n\nq1\n\na1\n\ni\nx\n\n");
  EXPECT_EQ(s.text, "o");
}

TEST(Shapes, AnEmptyTextOfToolsIsNone) {
  for (const char* tools : {R"("")", R"(" \n")", R"("[]")", "null", "[]"}) {
    const std::string row = R"({"messages":[{"role":"user","content":"q"}],"tools":)" + std::string(tools) + "}";
    EXPECT_TRUE(read(row).tools.is_null()) << tools;
  }
}

TEST(Shapes, AnInputAloneIsTheQuestion) {
  EXPECT_EQ(told(read(R"({"instruction":"","input":"x","output":"o"})").messages), "user:x|");
}

// LLaMA-Factory drops these.
TEST(Shapes, TurnsThatAreNoQuestionsAndAnswersAreBroken) {
  const auto broken = [](const std::string& roles) {
    Json row{{"messages", Json::array()}};
    for (const char c : roles)
      row["messages"].push_back({{"role", c == 'u'   ? "user"
                                          : c == 'a' ? "assistant"
                                          : c == 't' ? "tool"
                                                     : "system"},
                                 {"content", "x"}});
    return broken_turns(read(dump_json(row), {.broken_turns = true}));
  };
  for (const char* fine : {"ua", "sua", "uaua", "uata", "uatta"}) EXPECT_EQ(broken(fine), "") << fine;
  for (const char* wrong : {"", "s", "u", "au", "uu", "uuaa", "uaa", "usa", "uau", "uaus", "uat"})
    EXPECT_NE(broken(wrong), "") << wrong;
  EXPECT_EQ(broken_turns(read(R"({"text":"t"})")), "");
}

TEST(Shapes, WrongRowsSayWhatIsWrong) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"a":1,"b":null})", "keys are: a, b (null)"},
      {R"({"prompt":"a"})", "unknown row shape"},
      {R"({"text":3})", "'text' is not a string but number"},
      {R"({"messages":[]})", "empty conversation"},
      {R"({"messages":"hi"})", "not a list of messages"},
      {R"({"messages":[{"content":"x"}]})", "'messages[0]' has no role"},
      {R"({"messages":[{"role":"user","content":"x"},3]})", "'messages[1]' is not an object"},
      {R"({"input_ids":[1,2],"labels":[1]})", "'labels' has 1 values for 2"},
      {R"({"input_ids":[1,"x"]})", "not a token id"},
      {R"({"input_ids":[1,2.5]})", "not a token id"},
      {R"({"input_ids":[1,4294967296]})", "not a token id"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":"[1,"})", "tools"},
      {R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":3})", "not an object"},
      {R"({"instruction":"i","output":"o","history":[["a"]]})", "history"},
  };
  for (const auto& [json, what] : rows)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read(json); }), HasSubstr(what)) << json;
}

constexpr const char* kTalk = R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}])";

std::string row_with(const char* more) {
  return std::string("{") + kTalk + "," + more + "}";
}

TEST(Shapes, ColumnsWhoseNamesTellTheirMeaningAreMapped) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"question":"q","answer":"a"})", R"(set column_mapping: {"instruction": "question", "output": "answer"})"},
      {R"({"instruction":"q","response":"a"})", R"(set column_mapping: {"output": "response"})"},
      {R"({"id":"1","Frage":"q","Antwort":"a"})",
       R"(set column_mapping: {"instruction": "Frage", "output": "Antwort"})"},
      {R"({"prompt":"q","response":"a"})", R"(set column_mapping: {"instruction": "prompt", "output": "response"})"},
      {R"({"input":"q","target":"a"})", R"(set column_mapping: {"output": "target"})"},
      {R"({"dialog":[{"role":"user","content":"x"}]})", R"(set column_mapping: {"messages": "dialog"})"},
      {R"({"content":"t","meta":1})", "set dataset_text_field: content"},
  };
  for (const auto& [json, what] : rows)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read(json); }), HasSubstr(what)) << json;
}

TEST(Shapes, AnswersThatAreNullAreNamedWithTheKeyThatLeavesThemOut) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"prompt":"p","completion":null})", "'completion' is empty"},
      {R"({"instruction":"p","input":null,"output":null})", "'output' is empty"},
      {R"({"input":"p","output":null})", "'output' is empty"},
      {R"({"text":null})", "'text' is empty"},
      {R"({"messages":null})", "'messages' is empty"},
  };
  for (const auto& [json, what] : rows) {
    const std::string error = test::error_of(ErrorKind::input, [&] { read(json); });
    EXPECT_THAT(error, HasSubstr(what)) << json;
    EXPECT_THAT(error, HasSubstr("skip_empty_answers: true")) << json;
    EXPECT_THAT(missing_answer(parse_json(json, "row"), {}), HasSubstr(what)) << json;
  }
  for (const char* other : {R"({"prompt":null,"completion":"c"})", R"({"prompt":"p"})", R"({"text":"","prompt":"p"})"})
    EXPECT_EQ(missing_answer(parse_json(other, "row"), {}), "") << other;
}

TEST(Shapes, RowsThatAreNotTextAreRefusedByName) {
  for (const char* column : {R"("images":["a.png"])", R"("image":{"path":"a.png"})", R"("audios":["a.wav"])",
                             R"("audio":"a.wav")", R"("videos":["a.mp4"])", R"("video":"a.mp4")"}) {
    const std::string name = std::string(column).substr(0, std::string(column).find(':'));
    const std::string error = test::error_of(ErrorKind::input, [&] { read(row_with(column)); });
    EXPECT_THAT(error, HasSubstr("the row contains '" + name.substr(1, name.size() - 2) + "'")) << column;
    EXPECT_THAT(error, HasSubstr("only text is supported")) << column;
  }
  for (const char* shape :
       {R"({"instruction":"i","output":"o","images":["a"]})", R"({"text":"t","image":"a"})",
        R"({"prompt":"p","completion":"c","audio":{"path":"a"}})",
        R"({"conversations":[{"from":"human","value":"<image>"},{"from":"gpt","value":"b"}],"image":"a.jpg"})"})
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read(shape); }), HasSubstr("only text is supported")) << shape;
  for (const char* part : {"image", "image_url", "audio", "input_audio", "video"}) {
    const std::string row =
        std::string(R"({"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":")") + part +
        R"("}]}]})";
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read(row); }), HasSubstr(std::string("a part of type ") + part));
  }
  for (const char* none : {R"("images":[])", R"("images":null)", R"("image":"")", R"("imagery":"x")"})
    EXPECT_EQ(read(row_with(none)).shape, RowShape::chat) << none;
}

TEST(Shapes, RowsOfPreferenceTrainingAreRefusedByName) {
  const std::pair<std::string, const char*> rows[] = {
      {R"({"prompt":"p","chosen":"a","rejected":"b"})", "a chosen and a rejected answer"},
      {R"({"instruction":"p","input":"","chosen":"a","rejected":"b"})", "a chosen and a rejected answer"},
      {R"({"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"},"rejected":{"from":"gpt","value":"b"}})",
       "a chosen and a rejected answer"},
      {R"({"messages":[{"role":"user","content":"q"}],"chosen":[],"rejected":[]})", "a chosen and a rejected answer"},
      {R"({"chosen":[{"role":"user","content":"q"}],"rejected":[{"role":"user","content":"q"}]})", "a chosen and"},
      {R"({"prompt":"p","completion":"c","label":false})", "'label' says whether its answer is good"},
      {R"({"prompt":[{"role":"user","content":"w"}],"completion":[{"role":"assistant","content":"c"}],"label":true})",
       "'label' says"},
      {R"({"prompt":"p","completion":"c","label":"True"})", "'label' says"},
      {row_with(R"("kto_tag":true)"), "'kto_tag' says"},
      {R"({"instruction":"p","output":"c","kto_tag":false})", "'kto_tag' says"},
  };
  for (const auto& [json, what] : rows)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read(json); }), HasSubstr(what)) << json;
  for (const std::string& json :
       {row_with(R"("chosen":[1],"rejected":[2])"), row_with(R"("label":3)"), row_with(R"("label":"a topic")"),
        row_with(R"("kto_tag":null)"), std::string(R"({"text":"t","label":true})")})
    EXPECT_NO_THROW(read(json)) << json;
}

TEST(Shapes, ToolsAndCallsMayBeTheirJsonTexts) {
  const Json tool = {{"name", "f"}};
  for (const char* tools : {R"([{"name":"f"}])", R"("[{\"name\":\"f\"}]")", R"(["{\"name\":\"f\"}"])"}) {
    EXPECT_EQ(read(row_with((std::string(R"("tools":)") + tools).c_str())).tools, Json::array({tool})) << tools;
    const std::string calls =
        std::string(R"({"messages":[{"role":"assistant","content":"","tool_calls":)") + tools + "}]}";
    EXPECT_EQ(read(calls).messages[0]["tool_calls"], Json::array({tool})) << tools;
  }
  for (const char* none : {R"("")", "[]", R"("[]")", "null", R"("null")"})
    EXPECT_TRUE(read(row_with((std::string(R"("tools":)") + none).c_str())).tools.is_null()) << none;
  const std::pair<const char*, const char*> wrong[] = {
      {R"("tools":["f"])", "'tools'[0] is a string that is not JSON"},
      {R"("tools":[3])", "'tools'[0] is not an object but number"},
      {R"("tools":["3"])", "'tools'[0] is not an object but number"},
      {R"("tools":{"name":"f"})", "'tools' is not a list"},
      {R"("tools":"f")", "'tools' is a string that is not JSON"},
  };
  for (const auto& [tools, what] : wrong)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read(row_with(tools)); }), HasSubstr(what)) << tools;
}

TEST(Shapes, SwitchesOfMessagesAreOnOrOff) {
  for (const char* off : {R"("weight":0)", R"("weight":0.0)", R"("loss":false)", R"("train":false)", R"("loss":0)"})
    EXPECT_FALSE(is_learned(parse_json(std::string("{") + off + "}", "m"))) << off;
  for (const char* on : {R"("weight":1)", R"("loss":true)", R"("train":null)", R"("name":"x")", R"("weight":null)"})
    EXPECT_TRUE(is_learned(parse_json(std::string("{") + on + "}", "m"))) << on;
  for (const char* other : {R"("weight":0.5)", R"("weight":2)", R"("loss":"no")", R"("train":[])"})
    EXPECT_THAT(
        test::error_of(ErrorKind::input,
                       [&] { read(std::string(R"({"messages":[{"role":"user","content":"q",)") + other + "}]}"); }),
        HasSubstr("a message's"))
        << other;
}

class Prompts : public test::DataFolder {};

TEST_F(Prompts, TheLastAssistantTurnOrTheCompletionIsTheReference) {
  const RawRows rows({write(
      "rows.jsonl",
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a1"},)"
      R"({"role":"user","content":"q2"},{"role":"assistant","content":[{"type":"text","text":"a2"}]}],"tools":[{"name":"f"}]}
{"prompt":"p","completion":"c"}
{"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}],"chat_template_kwargs":{"enable_thinking":false}}
{"text":"t"}
{"messages":[{"role":"user","content":"q"}]}
{"text":7}
{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"bye"}]}
)")});
  const auto first = prompt_case(rows, 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->messages.size(), 3u);
  EXPECT_EQ(first->reference, "a2");
  EXPECT_EQ(first->tools.size(), 1u);
  EXPECT_TRUE(prompt_case(rows, 1)->messages.is_null());
  EXPECT_EQ(prompt_case(rows, 1)->prompt, "p");
  EXPECT_EQ(prompt_case(rows, 1)->reference, "c");
  EXPECT_EQ(prompt_case(rows, 2)->messages.size(), 1u);
  EXPECT_EQ(prompt_case(rows, 2)->template_kwargs["enable_thinking"], false);
  EXPECT_EQ(prompt_case(rows, 6)->messages.size(), 1u) << "what follows the answer is not part of the prompt";
  EXPECT_FALSE(prompt_case(rows, 3));
  EXPECT_FALSE(prompt_case(rows, 4));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { prompt_case(rows, 5); }), HasSubstr("rows.jsonl:6"));
}

}  // namespace
}  // namespace qtrain
