// How a run uses the training form of a stock chat template.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/os/file.h"
#include "core/sha256.h"
#include "tests/core/temp_folder.h"
#include "train/setup/prepared_data.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kStockTemplates = fs::path(QTRAIN_SOURCE_DIR) / "tests/text/goldens/training_templates";

class TrainingTemplate : public ::testing::Test {
 protected:
  TrainingTemplate() {
    fs::create_directories(folder_ / "model");
    write_file(folder_ / "model/config.json", "{}");
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      write_file(folder_ / "model" / name, read_text(kStockTemplates / "tokenizer" / name));
    set_template("qwen3");
    const std::string turns = R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
                              R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}]})";
    write_file(rows_, turns + "\n");
  }
  void set_template(const std::string& family) const {
    write_file(folder_ / "model/chat_template.jinja", read_text(kStockTemplates / "templates" / (family + ".jinja")));
  }
  Config config(Json more) const {
    more.update({{"model_name_or_path", (folder_ / "model").string()},
                 {"dataset_name", rows_},
                 {"eval_dataset_name", rows_},
                 {"token_cache_dir", (folder_ / "cache").string()},
                 {"output_dir", "o"}});
    return parse_config(dump_json(more), "c.json").value;
  }
  /// The learned part of the first row, as text.
  std::string learned(const Config& c, Split split = Split::train) {
    std::FILE* said = std::tmpfile();
    Log log(LogLevel::info, {.people = said});
    DataPreparation preparation(c, pool_, log);
    const Dataset rows = preparation.rows(split);
    if (split == Split::train) preparation.rows(Split::evaluation);
    said_.clear();
    std::rewind(said);
    for (int ch = std::fgetc(said); ch != EOF; ch = std::fgetc(said)) said_ += static_cast<char>(ch);
    std::fclose(said);
    std::vector<std::int32_t> targets;
    for (const std::int32_t label : rows.row(0).labels)
      if (label != kNoTarget) targets.push_back(label);
    return load_text_folder(c).tokenizer->decode(targets);
  }
  int times_said(const std::string& words) const {
    int times = 0;
    for (std::size_t at = said_.find(words); at != said_.npos; at = said_.find(words, at + 1)) ++times;
    return times;
  }

  testing::TempFolder folder_;
  std::string rows_ = (folder_ / "rows.jsonl").string(), said_;
  ThreadPool pool_{2};
};

constexpr const char* kBothTurns = "<think>\n\n</think>\n\nb<|im_end|>\n<think>\n\n</think>\n\nd<|im_end|>\n";

TEST_F(TrainingTemplate, MakesTheRowsOfAssistantOnlyLossAndIsNamedOnce) {
  const Config only = config({{"assistant_only_loss", true}});
  for (const char* from : {"made", "cached"}) {
    EXPECT_EQ(learned(only), kBothTurns) << from;
    EXPECT_EQ(times_said("training form of qwen3"), 1) << from << ": " << said_;
  }
  EXPECT_EQ(learned(only, Split::evaluation), kBothTurns);
}

TEST_F(TrainingTemplate, IsNotUsedOtherwise) {
  EXPECT_THAT(learned(config(Json::object())), HasSubstr("assistant\nb<|im_end|>"));
  EXPECT_EQ(times_said("training form"), 0);
  EXPECT_EQ(learned(config({{"last_turn_only_loss", true}})), "<think>\n\n</think>\n\nd<|im_end|>\n");
  EXPECT_EQ(times_said("training form"), 0);
  const std::string tagged =
      "{% for m in messages %}{{ m.role }}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
  EXPECT_EQ(learned(config({{"assistant_only_loss", true}, {"chat_template_path", tagged}})), "abcd");
  EXPECT_EQ(times_said("training form"), 0);
}

TEST_F(TrainingTemplate, IsLookedForBehindChatTemplatePath) {
  set_template("llama3");
  const std::string stock = (kStockTemplates / "templates/qwen3.jinja").string();
  EXPECT_EQ(learned(config({{"assistant_only_loss", true}, {"chat_template_path", stock}})), kBothTurns);
  EXPECT_EQ(learned(config({{"assistant_only_loss", true}})), "b<|eot_id|>d<|eot_id|>");
}

TEST_F(TrainingTemplate, IsNeitherSavedNorAnsweredWith) {
  const TextFolder text = load_text_folder(config({{"assistant_only_loss", true}}));
  ASSERT_TRUE(text.training_template);
  const std::string stock = read_text(kStockTemplates / "templates/qwen3.jinja");
  EXPECT_EQ(text.chat_template->source(), stock);
  fs::create_directories(folder_ / "out");
  save_text_folder(text, folder_ / "out");
  EXPECT_EQ(read_text(folder_ / "out/chat_template.jinja"), stock);
  fs::create_directories(folder_ / "of tokens");
  save_text_folder(load_template_folder(config(Json::object())), folder_ / "of tokens");
  EXPECT_EQ(read_text(folder_ / "of tokens/chat_template.jinja"), stock) << "needs no tokenizer";
}

TEST_F(TrainingTemplate, RowsThatDoNotFitAnUnknownTemplateAreNamedInTheLog) {
  write_file(folder_ / "model/chat_template.jinja",
             "{% for m in messages %}{% if m.content == 'odd' %}{{ m.content | length }}{% else %}{{ m.content }}"
             "{% endif %};{% endfor %}");
  const auto row = [](const char* answer) {
    return dump_json({{"messages",
                       {{{"role", "user"}, {"content", "q"}},
                        {{"role", "assistant"}, {"content", answer}},
                        {{"role", "user"}, {"content", "odd"}}}}}) +
           "\n";
  };
  write_file(rows_, row("x") + row("y") + "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}\n");
  for (const char* from : {"made", "cached"}) {
    EXPECT_EQ(learned(config({{"assistant_only_loss", true}})), "x;") << from;
    EXPECT_THAT(said_, HasSubstr("1 of 3 rows left out")) << from;
    EXPECT_THAT(said_, HasSubstr("rows.jsonl:3: the assistant says nothing")) << from;
  }
}

TEST_F(TrainingTemplate, RowsWithEmptyAnswersThatAreSkippedAreNamedInTheLog) {
  const auto row = [](const char* answer) { return dump_json({{"prompt", "q"}, {"completion", answer}}) + "\n"; };
  write_file(rows_, row("a") + row("") + row("b"));
  for (const char* from : {"made", "cached"}) {
    EXPECT_EQ(learned(config({{"skip_empty_answers", true}})), "a<|endoftext|>") << from;
    EXPECT_THAT(said_, HasSubstr("1 of 3 rows left out (skip_empty_answers); the first is ")) << from;
    EXPECT_THAT(said_, HasSubstr("rows.jsonl:2: the completion is empty")) << from;
    EXPECT_EQ(times_said("prompt and completion are strings in 2 rows"), 1) << from;
  }
}

TEST_F(TrainingTemplate, ThatLeavesTheEndOfTurnsOutIsToldOnce) {
  const auto tagged = [](const char* inside, const char* behind) {
    return fmt::format(
        "{{% for m in messages %}}{{{{ m.role }}}}{{% generation %}}{{{{ m.content{} }}}}{{% endgeneration %}}{}{{% "
        "endfor %}}",
        inside, behind);
  };
  const auto said = [&](const std::string& chat, const char* key) {
    learned(config({{key, true}, {"chat_template_path", chat}}));
    return times_said("end before the assistant's turn does");
  };
  EXPECT_EQ(said(tagged("", "<|im_end|>"), "assistant_only_loss"), 1);
  EXPECT_EQ(said(tagged(" + '<|im_end|>'", ""), "assistant_only_loss"), 0);
  EXPECT_EQ(said(tagged("", "<|im_end|>"), "last_turn_only_loss"), 0) << "TRL does not have this key";
}

TEST_F(TrainingTemplate, IsMissedWherePromptAndCompletionAreTexts) {
  write_file(rows_, "{\"prompt\":\"q\",\"completion\":\"a\"}\n{\"prompt\":\"r\",\"completion\":\"b\"}\n");
  for (const char* from : {"made", "cached"}) {
    EXPECT_EQ(learned(config(Json::object())), "a<|endoftext|>") << from;
    EXPECT_EQ(times_said("prompt and completion are strings in 2 rows"), 1) << from << ": " << said_;
    EXPECT_THAT(said_, HasSubstr("\"role\": \"user\"")) << from;
  }
  fs::remove(folder_ / "model/chat_template.jinja");
  learned(config(Json::object()));
  EXPECT_EQ(times_said("are strings"), 0) << "a base model has no template to leave out";
}

}  // namespace
}  // namespace qtrain
