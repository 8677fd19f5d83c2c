#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <set>
#include <sstream>

#include "app/cli/arguments.h"
#include "app/cli/command_table.h"
#include "app/cli/completion.h"
#include "app/cli/exit_codes.h"
#include "app/cli/help.h"
#include "app/cli/program.h"
#include "core/os/stop.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const Command& sample() {
  static const Command command{.name = "sample",
                               .operands = "CONFIG.json",
                               .summary = "For tests",
                               .flags = {{"json", FlagKind::present, "", ""},
                                         {"help", FlagKind::present, "", ""},
                                         {"device", FlagKind::choice, "cpu|cuda|auto", ""},
                                         {"max_new_tokens", FlagKind::integer, "N", ""},
                                         {"top_p", FlagKind::number, "P", ""},
                                         {"stop", FlagKind::repeated, "TEXT", ""},
                                         {"prompt", FlagKind::text, "TEXT", ""}},
                               .min_operands = 1,
                               .max_operands = 1,
                               .overrides = true};
  return command;
}

Arguments parse(const std::vector<std::string>& words) {
  return {sample(), words, std::make_shared<Log>()};
}

std::string complaint(const std::vector<std::string>& words) {
  return test::error_of(ErrorKind::usage, [&] { parse(words); });
}

/// A log that writes to memory.
struct Captured {
  char* people_text = nullptr;
  char* result_text = nullptr;
  std::size_t people_size = 0, result_size = 0;
  std::FILE* people = open_memstream(&people_text, &people_size);
  std::FILE* result = open_memstream(&result_text, &result_size);
  std::shared_ptr<Log> log = std::make_shared<Log>(LogLevel::info, Log::Sinks{people, result});

  ~Captured() {
    log.reset();
    std::fclose(people), std::fclose(result);
    std::free(people_text), std::free(result_text);
  }
  std::string said() { return std::fflush(people), std::string(people_text, people_size); }
  std::string results() { return std::fflush(result), std::string(result_text, result_size); }
};

int run(const std::vector<std::string>& words, Captured& out) {
  return run_program(words, out.log);
}

TEST(Arguments, FlagsOperandsAndOverrides) {
  const Arguments a =
      parse({"c.json", "learning_rate=1e-3", "--json", "--max-new-tokens=5", "lr_scheduler_kwargs.a={\"b\":1}",
             "--stop", "x", "--stop", "y", "--top_p", "0.5", "output_dir=a=b"});
  EXPECT_EQ(a.operand(0), "c.json");
  EXPECT_TRUE(a.json());
  EXPECT_EQ(a.integer("max_new_tokens"), 5);
  EXPECT_EQ(a.number("top_p"), 0.5);
  EXPECT_THAT(a.all("stop"), ElementsAre("x", "y"));
  EXPECT_THAT(a.overrides(), ElementsAre(Pair("learning_rate", "1e-3"), Pair("lr_scheduler_kwargs.a", "{\"b\":1}"),
                                         Pair("output_dir", "a=b")));
  EXPECT_EQ(a.text("prompt"), std::nullopt);
  EXPECT_EQ(a.device(), "auto");
}

TEST(Arguments, DeviceIsAConfigKeyToo) {
  EXPECT_THAT(parse({"c.json", "--device", "cpu"}).overrides(), ElementsAre(Pair("device", "cpu")));
}

TEST(Arguments, ValuesMayLookLikeFlags) {
  EXPECT_EQ(parse({"c.json", "--prompt", "--json"}).text("prompt"), "--json");
  EXPECT_EQ(parse({"c.json", "--prompt=-1"}).text("prompt"), "-1");
  EXPECT_EQ(parse({"--", "--odd.json"}).operand(0), "--odd.json");
}

TEST(Arguments, Errors) {
  EXPECT_THAT(complaint({"c.json", "--jsn"}), HasSubstr("has no flag --jsn\n  did you mean --json?"));
  EXPECT_THAT(complaint({"c.json", "--per_device_train_batch_size", "4"}),
              HasSubstr("set config keys as per_device_train_batch_size=VALUE"));
  EXPECT_THAT(complaint({"c.json", "--max_new_tokens"}), HasSubstr("needs a value (N)"));
  EXPECT_THAT(complaint({"c.json", "--max_new_tokens", "5x"}), HasSubstr("must be an integer, not \"5x\""));
  EXPECT_THAT(complaint({"c.json", "--top_p", "nan"}), HasSubstr("must be a number"));
  EXPECT_THAT(complaint({"c.json", "--device", "gpu"}), HasSubstr("must be one of cpu|cuda|auto"));
  EXPECT_THAT(complaint({"c.json", "--json=1"}), HasSubstr("takes no value"));
  EXPECT_THAT(complaint({}), HasSubstr("needs CONFIG.json"));
  EXPECT_THAT(complaint({"c.json", "d.json"}), HasSubstr("unexpected argument \"d.json\""));
  EXPECT_THROW(parse({"c.json"}).required("prompt"), Error);
}

TEST(Program, HelpAndVersion) {
  Captured out;
  EXPECT_EQ(run({"--version"}, out), 0);
  EXPECT_THAT(out.results(), ::testing::MatchesRegex("qtrain [0-9.]+\n"));
  EXPECT_EQ(run({"--help"}, out), 0);
  for (const Command& c : commands()) EXPECT_THAT(out.results(), HasSubstr("  " + std::string(c.name) + " "));
  for (const Command& c : commands()) {
    Captured one;
    EXPECT_EQ(run({std::string(c.name), "--help"}, one), 0);
    EXPECT_THAT(one.results(), HasSubstr("usage: qtrain " + std::string(c.name)));
    for (const Flag& f : c.flags) EXPECT_THAT(one.results(), HasSubstr("--" + std::string(f.name)));
  }
}

// Help shows the flags common to all commands only where they do something; elsewhere they are accepted silently.
TEST(Program, HelpShowsFlagsThatDoSomething) {
  struct Shown {
    const char* command;
    bool threads, device, quiet;
  };
  for (const Shown& s : std::vector<Shown>{{"train", true, true, true},
                                           {"estimate", true, true, true},
                                           {"generate", true, true, true},
                                           {"merge", true, false, true},
                                           {"inspect", false, false, true},
                                           {"clean", false, false, true},
                                           {"datasets", false, false, true},
                                           {"monitor", false, false, true},
                                           {"completion", false, false, false},
                                           {"man", false, false, false}}) {
    const std::string help = command_help(*find_command(s.command));
    const auto shows = [&](const char* flag) { return help.find(flag) != std::string::npos; };
    EXPECT_EQ(shows("--threads"), s.threads) << s.command;
    EXPECT_EQ(shows("--device"), s.device) << s.command;
    EXPECT_EQ(shows("--quiet"), s.quiet) << s.command;
  }
  Captured out;
  EXPECT_EQ(run({"completion", "bash", "--threads", "1", "--device", "cpu", "--quiet"}, out), 0);
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0, begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    longest = std::max(longest, end - begin);
  return std::max(longest, text.size() - begin);
}

TEST(Program, HelpFitsATerminalOf80Columns) {
  EXPECT_LT(longest_line(general_help()), 80u) << general_help();
  for (const Command& c : commands()) EXPECT_LT(longest_line(command_help(c)), 80u) << command_help(c);
}

TEST(ManPage, HasEveryCommandFlagAndExitCode) {
  Captured out;
  EXPECT_EQ(run({"man"}, out), 0);
  const std::string page = out.results();
  EXPECT_TRUE(page.find(".TH QTRAIN 1 ") != std::string::npos);
  for (const Command& c : commands()) {
    std::string name(c.name);
    if (const auto dash = name.find('-'); dash != name.npos) name.insert(dash, "\\");
    EXPECT_THAT(page, HasSubstr(".SS \"qtrain " + name + "\"\n"));
    for (const Flag& f : c.flags) EXPECT_THAT(page, HasSubstr("\\fB\\-\\-" + std::string(f.name) + "\\fR"));
  }
  for (const ExitCode& e : kExitCodes) EXPECT_THAT(page, HasSubstr("\\fB" + std::to_string(e.code) + "\\fR\n"));
  // roff interprets a line that begins with a period as a command.
  static const std::set<std::string> kMacros{"TH", "SH", "SS", "TP", "PP", "nf", "fi"};
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(!line.starts_with('.') || line.starts_with(".\\\"") || kMacros.contains(line.substr(1, 2))) << line;
}

TEST(Program, UnknownCommandsNameTheNearest) {
  Captured out;
  EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { run({"confg"}, out); }), HasSubstr("did you mean \"config\"?"));
  EXPECT_THROW(run({}, out), Error);
}

TEST(Program, ConfigWithoutAFileIsTheReference) {
  Captured out;
  EXPECT_EQ(run({"config"}, out), 0);
  EXPECT_THAT(out.results(), HasSubstr("### `learning_rate`\n\nPeak learning rate.\n\nDefault `2e-05`;"));
}

TEST(Program, DoctorSaysWhatTheMachineHas) {
  Captured out;
  EXPECT_EQ(run({"doctor", "--json"}, out), 0);
  const Json report = Json::parse(out.results());
  for (const char* part : {"processor", "usable cores", "AVX2 + FMA", "memory", "CUDA"})
    EXPECT_TRUE(report.contains(part)) << part;
  for (const auto& [name, part] : report.items()) EXPECT_EQ(part.size(), 3u) << name;
  Captured lines;
  EXPECT_EQ(run({"doctor"}, lines), 0);
  EXPECT_LT(longest_line(lines.results()), 80u) << lines.results();
  EXPECT_THAT(lines.results(), HasSubstr("missing\n"));
}

TEST(Completion, KnowsEveryCommandAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell);
    for (const Command& c : commands()) {
      EXPECT_THAT(script, HasSubstr(std::string(c.name)));
      for (const Flag& f : c.flags)
        EXPECT_THAT(script, HasSubstr((shell == std::string("fish") ? "-l " : "--") + std::string(f.name)));
    }
  }
  EXPECT_THROW(completion_script("tcsh"), Error);
}

TEST(Stop, TheFirstSignalIsRememberedTheSecondEnds) {
  install_stop_handlers();
  set_stop_requested(false);
  std::raise(SIGTERM);
  EXPECT_TRUE(stop_requested());
  EXPECT_EXIT(std::raise(SIGINT), ::testing::ExitedWithCode(130), "");
  set_stop_requested(false);
  std::raise(SIGPIPE);  // ignored
  EXPECT_FALSE(stop_requested());
}

TEST(LogOutput, LevelsPrefixesAndSinks) {
  Captured out;
  out.log->info("a {}", 1);
  out.log->debug("hidden");
  out.log->warn("b");
  out.log->result("c");
  out.log->set_level(LogLevel::warning);
  out.log->info("hidden");
  EXPECT_EQ(out.said(), "a 1\nwarning: b\n");
  EXPECT_EQ(out.results(), "c\n");
}

TEST(LogOutput, WithoutATerminalOnlyLoggedStatesBecomeLines) {
  Captured out;
  out.log->progress({.step = 1, .total = 3, .loss = 2.5});
  out.log->progress({.step = 2,
                     .total = 3,
                     .loss = 2.25,
                     .learning_rate = 1e-4,
                     .tokens_per_second = 812.4,
                     .eta_seconds = 61,
                     .logged = true});
  out.log->progress({.step = 3, .total = 3});
  EXPECT_EQ(out.said(), "step 2/3  66%  loss 2.2500  lr 0.0001  812 tokens/s  ETA 1:01\nstep 3/3 100%\n");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(1.0 / 0.0), "?");
}

TEST(LogOutput, AFullDiskIsAnError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Log log(LogLevel::info, {stderr, full});
  EXPECT_EQ(test::error_of([&] { log.result("x"); }).kind(), ErrorKind::disk);
  std::fclose(full);
}

}  // namespace
}  // namespace qtrain
