// `qtrain init` on a terminal: what it shows, asks and keeps.
#include "tests/e2e/init_support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Init, OnATerminalShowsEachChoiceAndTakesOthers) {
  Process process(typed());
  ASSERT_TRUE(process.waits_for("preset: \"lora\"")) << process.said();
  ASSERT_TRUE(process.waits_for("> ")) << process.said();
  process.type("\r");
  ASSERT_TRUE(process.waits_for("max_length: 64")) << process.said();
  process.type("-3\r");
  ASSERT_TRUE(process.waits_for("max_length must be")) << process.said();
  process.type("48\r");
  for (const char* key : {"num_train_epochs: 10", "learning_rate: ", "output_dir: "}) {
    ASSERT_TRUE(process.waits_for(key)) << process.said();
    process.type("\r");
  }
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(config().at("max_length"), 48);
  EXPECT_EQ(config().at("num_train_epochs"), 10);
}

// Refusals that do not depend on the answers.
TEST_F(Init, OnATerminalRefusesBeforeItAsks) {
  struct Refused {
    std::vector<std::string> words;
    const char* said;
  };
  write_file(folder_ / "mine.json", "{}\n");
  fs::create_directories(folder_ / "rows");
  fs::copy_file(folder_ / "chats.jsonl", folder_ / "rows/a.jsonl");
  for (const auto& [words, said] : std::vector<Refused>{
           {{"--output", "mine.json"}, "--overwrite"},
           {{"--output", "none/c.json"}, "create the folder"},
           {{"--data", "rows", "--output", "rows/c.json"}, "read as rows"},
           {{"--output", "chats.jsonl", "--overwrite"}, "chats.jsonl"},
           {{"no_such_key=1"}, "no_such_key"},
           {{"save_strategy=no", "load_best_model_at_end=true"}, "load_best_model_at_end"},
           {{"eval_steps=10", "save_steps=15", "load_best_model_at_end=true"}, "multiple of eval_steps"},
           {{"max_length=4"}, "nothing to learn"},
           {{"output_dir=llama"}, "llama"}}) {
    Launch launch = typed();
    launch.argv.insert(launch.argv.end(), words.begin(), words.end());
    Process process(launch);
    const Outcome outcome = process.wait();
    EXPECT_THAT(outcome.code, AnyOf(2, 3, 6)) << words.front();
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(said), Not(HasSubstr("Enter keeps it")))) << words.front();
  }
}

TEST_F(Init, OnATerminalAsksAgainForValuesThatCannotBeUsed) {
  Launch launch = typed();
  launch.argv.push_back("use_peft=true");
  Process process(launch);
  for (const auto& [said, word] : std::vector<std::pair<const char*, const char*>>{{"preset: \"lora\"", "full"},
                                                                                   {"with preset full", ""},
                                                                                   {"max_length: 64", "4"},
                                                                                   {"no target tokens", " 48 "},
                                                                                   {"num_train_epochs: 10", ""},
                                                                                   {"learning_rate: ", ""},
                                                                                   {"output_dir: ", "llama"},
                                                                                   {"input of the run", "result"}}) {
    ASSERT_TRUE(process.waits_for(said)) << said << "\n" << process.said();
    ASSERT_TRUE(process.waits_for("> ")) << process.said();
    process.type(std::string(word) + "\r");
  }
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(config().at("preset"), "lora");
  EXPECT_EQ(config().at("max_length"), 48);
  EXPECT_EQ(config().at("output_dir"), "result");
}

TEST_F(Init, OnATerminalKeepsTheAnswersOfARefusedDialog) {
  Launch launch = typed();
  launch.argv = {program(), "init", "--data", "chats.jsonl", "--output", "made/c.json", "seed=3"};
  fs::create_directories(folder_ / "made");
  Process process(launch);
  ASSERT_TRUE(process.waits_for("Which model?")) << process.said();
  process.type("llama\r");
  ASSERT_TRUE(process.waits_for("preset: ")) << process.said();
  process.type("\r");
  ASSERT_TRUE(process.waits_for("max_length: ")) << process.said();
  process.type("48\r");
  fs::remove(folder_ / "made");
  for (const char* key : {"num_train_epochs: ", "learning_rate: ", "output_dir: "}) {
    ASSERT_TRUE(process.waits_for(key)) << process.said();
    process.type("\r");
  }
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("qtrain init --model llama --data chats.jsonl --output made/c.json seed=3 "
                                     "max_length=48"));
}

TEST_F(Init, AsksForModelAndDataOnATerminal) {
  Launch launch = typed();
  launch.argv.resize(2);
  Process process(launch);
  ASSERT_TRUE(process.waits_for("Which model?")) << process.said();
  process.type("llama\r");
  ASSERT_TRUE(process.waits_for("Which rows?")) << process.said();
  process.type("chats.jsonl\r");
  EXPECT_TRUE(process.waits_for("preset: \"lora\"")) << process.said();
}

TEST_F(Init, LeavesNothingBehindIfTheUserLeaves) {
  for (const std::string key : {"\x04", "\x03"}) {
    Process process(typed());
    ASSERT_TRUE(process.waits_for("> ")) << process.said();
    process.type(key);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("stopped"));
    EXPECT_FALSE(wrote());
  }
}

TEST_F(Init, FitsANarrowTerminal) {
  constexpr int kColumns = 60;
  Process process(typed(kColumns));
  for (const char* key : {"preset: ", "max_length: ", "num_train_epochs: ", "learning_rate: ", "output_dir: "}) {
    ASSERT_TRUE(process.waits_for(key)) << process.said();
    process.type("\r");
  }
  const Outcome outcome = process.wait();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::string text;
  for (const char c : outcome.err)
    if (c != '\r') text += c;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; begin = end + 1, end = text.find('\n', begin))
    if (const std::string line = text.substr(begin, end - begin);
        line.find('\x1b') == line.npos)  // the editor's have them
      EXPECT_LE(line.size(), static_cast<std::size_t>(kColumns)) << line;
}

}  // namespace
}  // namespace qtrain::e2e
