// What a user sees on a terminal while the program works, and what is written without a terminal.
#include <signal.h>

#include <algorithm>

#include "core/os/file.h"
#include "core/os/terminal.h"
#include "tests/e2e/ranks.h"
#include "tests/e2e/screen.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Look {
  int columns = 80;
  std::vector<std::string> environment = {"TERM=xterm-256color", "NO_COLOR="};
};

Launch launch_seen(const std::vector<std::string>& words, const Look& look) {
  Launch launch = launch_of({.words = words});
  launch.columns = look.columns;
  launch.environment = look.environment;
  return launch;
}

Outcome seen(const std::vector<std::string>& words, const Look& look = {}) {
  return Process(launch_seen(words, look)).wait();
}

std::vector<std::string> that_start(const std::vector<std::string>& lines, const std::string& with) {
  std::vector<std::string> found;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
               [&](const std::string& line) { return line.starts_with(with); });
  return found;
}

/// The states that the live line showed.
std::vector<std::string> live_lines(const std::string& bytes) {
  std::vector<std::string> lines;
  constexpr std::string_view kErase = "\r\x1b[J";
  for (std::size_t at = bytes.find(kErase); at != std::string::npos; at = bytes.find(kErase, at)) {
    at += kErase.size();
    const std::size_t end = std::min(bytes.find(kErase, at), bytes.size()), last = bytes.rfind('\n', end);
    const std::size_t begin = last == std::string::npos || last < at ? at : last + 1;
    std::string line = bytes.substr(begin, end - begin);
    std::erase(line, '\r');
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::size_t longest(const std::vector<std::string>& lines) {
  std::size_t most = 0;
  for (const std::string& line : lines) most = std::max(most, line.size());
  return most;
}

class OnATerminal : public ::testing::Test {
 protected:
  /// The command of a run with `steps` steps that logs every second one.
  std::vector<std::string> run(int steps, const Json& change = Json::object()) {
    Json config = tiny_lora_run(folder_ / "out");
    config.update({{"max_steps", steps}, {"logging_steps", 2}, {"save_strategy", "no"}});
    config.update(change);
    write_file(folder_ / "run.json", dump_json(config));
    return {(folder_ / "run.json").string()};
  }
  TempFolder folder_;
};

TEST_F(OnATerminal, RowsStayAboveALineThatFits) {
  for (const int columns : {60, 80, 120}) {
    const Outcome outcome = seen(run(6), {.columns = columns});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto rows = that_start(screen_after(outcome.err, columns), "step ");
    ASSERT_EQ(rows.size(), 3u) << outcome.err;  // the live line has been erased
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_THAT(rows[i], AllOf(StartsWith("step " + std::to_string(2 * i + 2) + "/6"), HasSubstr("loss ")));
    EXPECT_LT(longest(rows), static_cast<std::size_t>(columns));
    const auto lines = live_lines(outcome.err);
    EXPECT_GE(that_start(lines, "step ").size(), 1u) << outcome.err;
    EXPECT_LT(longest(lines), static_cast<std::size_t>(columns));
  }
}

// Rank 0 draws the live line, and the launcher reports what happens to another rank.
TEST_F(OnATerminal, WhatTheLauncherSaysStandsByItself) {
  for (const int columns : {60, 80, 120}) {
    Process process(launch_seen(run(1'000'000, {{"nproc", 2}, {"device", "cpu"}, {"logging_steps", 1'000'000}}),
                                {.columns = columns}));
    ASSERT_TRUE(process.waits_for("/1000000 ")) << process.said();
    ::kill(children_of(process.pid()).at(1), SIGKILL);
    const std::vector<std::string> lines = screen_after(process.wait().err, columns);
    const std::string said = "error: rank 1 was ended by signal 9 (Killed); the other ranks have stopped";
    EXPECT_THAT(lines, Contains(wrapped(said, columns - 1).front()));
    EXPECT_THAT(lines, Not(Contains(HasSubstr("/1000000 ")))) << columns;
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(OnATerminal, WideOnesShowAllAndABar) {
  const auto steps = that_start(live_lines(seen(run(6), {.columns = 120}).err), "step ");
  ASSERT_GE(steps.size(), 1u);
  EXPECT_THAT(steps, Each(AllOf(HasSubstr("tokens/s"), HasSubstr("ETA"), HasSubstr("["))));
}

TEST_F(OnATerminal, AnotherWidthCountsFromTheNextLineOn) {
  Process process(launch_seen(run(4000), {.columns = 120}));
  ASSERT_TRUE(process.waits_for("step 20/"));
  const std::size_t before = process.said().size();
  EXPECT_GT(longest(live_lines(process.said())), 60u);
  process.resize(40);
  ASSERT_TRUE(process.waits_for("step 1000/"));
  process.signal(SIGINT);
  const std::string after = process.wait().err.substr(before);
  const std::size_t settled = after.find('\n', after.find('\n') + 1);  // skips output that was still on its way
  const auto lines = live_lines(after.substr(settled));
  EXPECT_GE(lines.size(), 1u);
  EXPECT_LT(longest(lines), 40u);
}

TEST_F(OnATerminal, ATerminalWithoutAWidthHasThatOfTheEnvironment) {
  const Outcome outcome = seen(run(6), {.columns = 0, .environment = {"TERM=xterm", "COLUMNS=50"}});
  const auto lines = live_lines(outcome.err);
  EXPECT_LT(longest(that_start(lines, "step ")), 50u);
  EXPECT_GT(longest(that_start(lines, "step ")), 30u);
}

TEST_F(OnATerminal, ADumbOneGetsPlainLines) {
  for (const char* term : {"TERM=dumb", "TERM="}) {
    const Outcome outcome = seen(run(6), {.environment = {term}});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b"))) << term;
    const auto lines = screen_after(outcome.err, 1000);
    EXPECT_EQ(that_start(lines, "step ").size(), 3u) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\r'),
              std::count(outcome.err.begin(), outcome.err.end(), '\n'));  // the terminal adds carriage returns
  }
}

TEST_F(OnATerminal, DisableTqdmKeepsTheRows) {
  const Outcome outcome = seen(run(6, {{"disable_tqdm", true}}));
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b[J")));
  EXPECT_EQ(that_start(screen_after(outcome.err, 80), "step ").size(), 3u) << outcome.err;
  const Outcome piped =
      qtrain_ok({.words = run(6, {{"disable_tqdm", true}, {"output_dir", (folder_ / "b").string()}})});
  EXPECT_THAT(piped.err, AllOf(HasSubstr("step 2/6"), HasSubstr("step 4/6"), HasSubstr("step 6/6")));
}

TEST_F(OnATerminal, WarningsAndErrorsBeginWithTheirNameAndColor) {
  const std::vector<std::string> wrong{"no_such_command"};
  EXPECT_THAT(seen(wrong).err, StartsWith("\x1b[1;31merror:\x1b[0m there is no command"));
  EXPECT_THAT(seen(wrong, {.environment = {"TERM=xterm", "NO_COLOR=1"}}).err, StartsWith("error: there is no"));
  EXPECT_THAT(seen(wrong, {.environment = {"TERM=dumb", "NO_COLOR="}}).err, StartsWith("error: there is no"));
  EXPECT_THAT(qtrain({.words = wrong}).err, StartsWith("error: there is no"));
  qtrain_ok({.words = run(2, {{"save_strategy", "steps"}, {"save_steps", 2}})});
  std::vector<std::string> again = run(2);
  again.insert(again.end(), {"--resume", "never"});
  EXPECT_THAT(seen(again).err, HasSubstr("\x1b[1;33mwarning:\x1b[0m starting over"));
}

TEST_F(OnATerminal, EveryLongJobHasABar) {
  const fs::path base = kGoldens / "lora_llama_all";
  write_untrained_model(folder_ / "random");
  Json config = tiny_run(folder_ / "model");
  config.update({{"model_name_or_path", (folder_ / "random").string()}, {"random_init", true}, {"max_steps", 1}});
  write_file(folder_ / "model.json", dump_json(config));
  qtrain_ok({.words = {(folder_ / "model.json").string()}});
  write_file(folder_ / "prompts.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n{\"prompt\": \"c\"}\n");
  Json chat = tiny_run(folder_ / "other");
  chat["eval_dataset_name"] = chat["dataset_name"];
  write_file(folder_ / "eval.json", dump_json(chat));

  const std::string model = (folder_ / "model").string(), gguf = (folder_ / "a.gguf").string();
  struct Job {
    std::string bar;
    std::vector<std::string> words;
  };
  for (const Job& job :
       std::vector<Job>{{"tokenizing", {"preprocess", (folder_ / "eval.json").string()}},
                        {"tokenizing", {"validate", (folder_ / "eval.json").string()}},
                        {"evaluating", {"eval", (folder_ / "eval.json").string()}},
                        {"answering", {"generate", "--model", model, "--input", (folder_ / "prompts.jsonl").string()}},
                        {"quantizing", {"quantize", "--model", model, "--output", (folder_ / "four").string()}},
                        {"merging",
                         {"merge", "--model", base.string(), "--adapter", (base / "adapter").string(), "--output",
                          (folder_ / "merged").string()}},
                        {"exporting", {"export", "--model", model, "--output", gguf}},
                        {"exporting",
                         {"export", "--model", base.string(), "--adapter", (base / "adapter").string(), "--output",
                          (folder_ / "adapter.gguf").string()}},
                        {"importing", {"import", gguf, "--output", (folder_ / "back").string()}}}) {
    const Outcome outcome = seen(job.words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto bars = that_start(live_lines(outcome.err), job.bar);
    ASSERT_GE(bars.size(), 1u) << job.bar << outcome.err;
    EXPECT_THAT(bars, Each(AllOf(HasSubstr("%"), HasSubstr("[")))) << job.bar;
    EXPECT_EQ(that_start(screen_after(outcome.err, 80), job.bar).size(), 0u) << outcome.err;
    EXPECT_EQ(qtrain_ok({.words = job.words}).err.find('\x1b'), std::string::npos) << job.bar;
  }
}

}  // namespace
}  // namespace qtrain::e2e
