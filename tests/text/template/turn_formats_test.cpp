#include "text/template/turn_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/text/template/golden_support.h"
#include "text/template/named_templates.h"

namespace qtrain {
namespace {

class TurnFormats : public test::TemplateGolden {};

/// The parts of the text that the assistant says.
Json answers_in(const Json& got) {
  Json answers = Json::array();
  const std::string text = got["text"].get<std::string>();
  for (const Json& range : got["generated"]) {
    const std::size_t begin = range[0], end = range[1];
    answers.push_back(text.substr(begin, end - begin));
  }
  return answers;
}

// The goldens are made from the tables of those tools.
TEST_F(TurnFormats, AreThoseOfTheToolsThatNameThem) {
  const std::vector<Json> rows = test::read_rows(test::kTemplateGoldens / "turn_formats.jsonl");
  ASSERT_GT(rows.size(), 250u);
  for (const Json& row : rows) {
    const std::string source = find_named_template(row["name"].get<std::string>());
    ASSERT_FALSE(source.empty()) << row["name"];
    const Json got = test::outcome(
        source, {{"messages", row["messages"]}, {"add_generation_prompt", row.value("add_generation_prompt", false)}});
    ASSERT_TRUE(got.contains("text")) << row["name"] << got;
    EXPECT_EQ(got["text"], row["text"]) << row["name"] << " " << row["case"];
    const Json answers = row.value("answers", answers_in(got));
    EXPECT_EQ(answers_in(got), answers) << row["name"] << " " << row["case"];
  }
}

// An answer is learned with its end, whatever follows.
TEST_F(TurnFormats, LearnAnswersOfAxolotlWithTheirEnds) {
  const Json messages = parse_json(
      R"([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"},
          {"role": "assistant", "content": "a2"}])",
      "messages");
  const std::pair<const char*, std::array<const char*, 2>> cases[] = {
      {"deepseek_v3", {"a1<｜end▁of▁sentence｜>", "a2<｜end▁of▁sentence｜>"}},
      {"exaone", {"a1[|endofturn|]", "a2[|endofturn|]"}},
      {"llama4", {"a1<|eot|>", "a2<|eot|>"}},
      {"metharme", {"a1", "a2</s>"}},
      {"mistral_v1", {" a1</s>", " a2</s>"}},
      {"mistral_v2v3", {" a1</s>", " a2</s>"}},
      {"mistral_v3_tekken", {"a1</s>", "a2</s>"}},
      {"mistral_v7_tekken", {"a1</s>", "a2</s>"}},
      {"nemotron_h", {"a1<|im_end|>", "a2<|im_end|>"}},
      {"phi_4", {"a1<|im_end|>", "a2<|im_end|>"}},
      {"qwen2_vl", {"a1<|im_end|>", "a2<|im_end|>"}},
      {"qwen3", {"a1<|im_end|>", "<think>\n\n</think>\n\na2<|im_end|>"}},
  };
  for (const auto& [name, answers] : cases) {
    const std::string source = find_named_template(std::string("axolotl_") + name);
    EXPECT_EQ(answers_in(test::outcome(source, {{"messages", messages}})), Json(answers)) << name;
  }
}

TEST_F(TurnFormats, RefuseWhatTheyHaveNoPlaceFor) {
  const Json tool = {{"role", "tool"}, {"content", "r"}}, question = {{"role", "user"}, {"content", "q"}};
  const Json late = {{"role", "system"}, {"content", "s"}};
  for (const Json& messages : {Json{question, tool}, Json{question, late}})
    for (const char* name : {"llamafactory_qwen", "axolotl_phi_4", "axolotl_metharme", "axolotl_mistral_v2v3"})
      EXPECT_TRUE(test::outcome(find_named_template(name), {{"messages", messages}}).contains("error"))
          << name << messages;
  const Json twice = {question, question};
  for (const char* name : {"axolotl_mistral_v1", "axolotl_mistral_v2v3", "axolotl_mistral_v3_tekken"})
    EXPECT_TRUE(test::outcome(find_named_template(name), {{"messages", twice}}).contains("error")) << name;
  EXPECT_EQ(find_turn_format("llamafactory_of_nobody"), "");
}

}  // namespace
}  // namespace qtrain
