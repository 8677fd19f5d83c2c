// Reduces conversations for pre-training as LLaMA-Factory does.
#include "data/first_prompt.h"

#include <gmock/gmock.h>

#include "data/encode.h"
#include "tests/data/dataset_support.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

class FirstPrompts : public test::DatasetFolder {};

// Expected results are those of LLaMA-Factory's PretrainDatasetProcessor: the content of the prompt's first message,
// and EOS.
TEST_F(FirstPrompts, AreAllThatIsLearntOfConversations) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"instruction":"i","input":"x","output":"o"})", "i\nx"},
      {R"({"instruction":"i","input":"","output":"o","system":"s"})", "i"},
      {R"({"instruction":"i","output":"o","history":[["q1","a1"],["q2","a2"]]})", "q1"},
      {R"({"instruction":"i","output":null})", "i"},
      {R"({"conversations":[{"from":"system","value":"s"},{"from":"human","value":"q1"},{"from":"gpt","value":"a1"},)"
       R"({"from":"human","value":"q2"},{"from":"gpt","value":"a2"}]})",
       "q1"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"system":"s"})", "q"},
      {R"({"messages":[{"role":"user","content":""},{"role":"assistant","content":"a"}]})", ""},
      {R"({"prompt":"p","completion":"c"})", "p"},
      {R"({"text":"all of it"})", "all of it"},
  };
  std::string rows;
  for (const auto& [row, text] : cases) rows += std::string(row) + "\n";
  rows += R"({"messages":[{"role":"user","content":"q"},{"role":"user","content":"q"}]})"
          "\n";
  const Dataset data = build(rows, {.skip_broken_turns = true, .first_prompt_only = true});
  ASSERT_EQ(data.size(), 9);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(text_of(data, i), std::string(cases[i].second) + "<|im_end|>") << cases[i].first;
    EXPECT_EQ(targets_of(data, i), text_of(data, i)) << cases[i].first;
  }
  EXPECT_EQ(data.statistics().first_prompts, 8) << "a text is not counted";
  EXPECT_EQ(data.statistics().broken.count, 1);
  const DatasetOptions without{.first_prompt_only = true};
  EXPECT_THAT(
      test::error_of(ErrorKind::input, [&] { build(R"({"messages":[{"role":"assistant","content":"a"}]})", without); }),
      HasSubstr("no question before its first answer"));
  const TextTools no_template{.tokenizer = *chatml_.tokenizer};
  const RowEncoder encoder(without, no_template);
  EXPECT_EQ(encoder.text_of(parse_json(cases[0].first, "row")), "i\nx<|im_end|>") << "no chat template is needed";
}

TEST_F(FirstPrompts, AreChainedIntoBlocks) {
  const std::string row = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"
                          "\n";
  DatasetOptions options{.max_length = 3, .packing = Packing::blocks, .first_prompt_only = true};
  const Dataset data = build(row + row + row + row, options);
  ASSERT_EQ(data.size(), 2) << "the last two of eight tokens do not fill a block";
  EXPECT_EQ(text_of(data, 0), "q<|im_end|>q");
  EXPECT_EQ(text_of(data, 1), "<|im_end|>q<|im_end|>");
}

}  // namespace
}  // namespace qtrain
