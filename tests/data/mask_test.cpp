#include <gmock/gmock.h>

#include "tests/data/dataset_support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Masks : public test::DatasetFolder {};

TEST_F(Masks, MasksOfTokenRowsApplyWhereThereAreNoLabels) {
  const std::string rows =
      "{\"input_ids\":[1,2,3,4],\"assistant_masks\":[0,1,1,0],\"completion_mask\":[0,0,1,1]}\n"
      "{\"input_ids\":[1,2,3,4],\"assistant_masks\":[0,0,0,0],\"labels\":[1,2,3,4]}\n";
  EXPECT_THAT(build(rows).row(0).labels, ElementsAre(-100, 2, 3, -100));
  EXPECT_THAT(build(rows, {.completion_only_loss = true}).row(0).labels, ElementsAre(-100, -100, 3, -100));
  EXPECT_THAT(build(rows).row(1).labels, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { build("{\"input_ids\":[1,2],\"labels\":[1,-7]}\n"); }),
              HasSubstr("-100 for none"));
}

TEST_F(Masks, RowsWithoutTargetsAreDroppedOnlyWhereRowsAreCut) {
  const std::string rows = "{\"input_ids\":[1,2],\"labels\":[-100,-100]}\n{\"input_ids\":[1,2]}\n";
  EXPECT_EQ(build(rows).size(), 1);
  EXPECT_EQ(build(rows).statistics().dropped_rows, 1);
  EXPECT_EQ(build(rows, {.max_length = std::nullopt}).size(), 2);
  EXPECT_EQ(build(rows, {.max_length = std::nullopt}).statistics().untargeted_rows, 1);
  EXPECT_EQ(build(rows, {.max_length = 4, .packing = Packing::bfd}).length(0), 4);
}

TEST_F(Masks, AssistantOnlyLossLearnsTheAnswersAndTheirEnd) {
  const Dataset data = build(
      R"({"conversations":[{"from":"human","value":"q1"},{"from":"gpt","value":"first"},{"from":"human","value":"q2"},{"from":"gpt","value":"日本 🦊"}]})",
      {.assistant_only_loss = true});
  EXPECT_EQ(targets_of(data, 0), "first<|im_end|>日本 🦊<|im_end|>");
}

constexpr const char* kTwoTurns =
    R"({"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"first"},{"role":"user","content":"q2"},{"role":"assistant","content":"last"}]})";

TEST_F(Masks, LastTurnOnlyLossLearnsTheLastAnswer) {
  EXPECT_EQ(targets_of(build(kTwoTurns, {.last_turn_only_loss = true}), 0), "last<|im_end|>");
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build("{\"text\":\"a\"}", {.last_turn_only_loss = true}); }),
              HasSubstr("last_turn_only_loss"));
}

TEST_F(Masks, ResponseAndInstructionTemplatesSayWhatIsLearnt) {
  DatasetOptions options{.response_template = "assistant\n"};
  EXPECT_EQ(targets_of(build(kTwoTurns, options), 0), "last<|im_end|>\n");
  options.instruction_template = "<|im_start|>user";
  EXPECT_EQ(targets_of(build(kTwoTurns, options), 0), "first<|im_end|>\nlast<|im_end|>\n");
  const std::string alpaca = "{\"text\":\"### Ask: 1\\n### Say: x y### Ask: 2\\n### Say: zoë\"}\n";
  options = {.response_template = "### Say:", .instruction_template = "### Ask:"};
  EXPECT_EQ(targets_of(build(alpaca, options), 0), " x y zoë<|im_end|>");
}

TEST_F(Masks, RowsWithoutAResponseTemplateAreDroppedAndCounted) {
  const std::string rows = "{\"text\":\"no answer\"}\n{\"text\":\"Say: this\"}\n";
  const Dataset data = build(rows, {.response_template = "Say:"});
  EXPECT_EQ(data.size(), 1);
  EXPECT_EQ(data.statistics().dropped_rows, 1);
  EXPECT_EQ(targets_of(data, 0), " this<|im_end|>");
}

TEST_F(Masks, EosIsLearntBehindAResponseTemplateWhateverTheTokenizerDoesWithIt) {
  const DatasetOptions options{.files = {write("rows.jsonl", "{\"text\":\"q:a\"}\n{\"text\":\"q:a</s>\"}\n")},
                               .response_template = ":"};
  for (const bool add_eos : {false, true}) {
    const test::ByteTokenizer tokenizer(add_eos);
    const Dataset data = build_dataset(options, {.tokenizer = tokenizer}, pool_);
    for (std::int64_t i = 0; i < 2; ++i)
      EXPECT_THAT(data.row(i).labels, ElementsAre(-100, -100, -100, 'a', 2)) << add_eos;
  }
}

TEST_F(Masks, ATemplateForAnswersExcludesOtherWaysToFindThem) {
  for (const DatasetOptions& options : {DatasetOptions{.assistant_only_loss = true, .response_template = "a"},
                                        DatasetOptions{.last_turn_only_loss = true, .response_template = "a"},
                                        DatasetOptions{.instruction_template = "a"}})
    EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build(kTwoTurns, options); }), HasSubstr("response_template"));
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { build("{\"input_ids\":[1,2]}", {.response_template = "a"}); }),
              HasSubstr("holds tokens"));
}

TEST_F(Masks, WithoutGenerationTagsTheAnswersAreFoundByPrefix) {
  std::string source = chatml_.chat.source();
  for (const std::string tag : {"{%- generation %}", "{% endgeneration %}"}) source.erase(source.find(tag), tag.size());
  const ChatTemplate plain(source, "plain", {});
  const DatasetOptions options{
      .files = {write("rows.jsonl",
                      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a b"}]})")},
      .assistant_only_loss = true};
  const Dataset data = build_dataset(options, {.tokenizer = *chatml_.tokenizer, .chat_template = &plain}, pool_);
  EXPECT_THAT(targets_of(data, 0), ::testing::StartsWith("a b<|im_end|>"));
  EXPECT_THAT(targets_of(data, 0), ::testing::Not(HasSubstr("user")));
}

}  // namespace
}  // namespace qtrain
