// The completions that shells offer, according to the shells themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

constexpr std::chrono::seconds kShellAnswers{10};

/// A shell with the program's completion script, in a folder with some files.
class Shell : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(folder_ / "run.json", "{}");
    write_file(folder_ / "notes.txt", "");
    fs::create_directory(folder_ / "model");
  }
  std::string script(const std::string& shell) {
    write_file(folder_ / "script", qtrain_ok({.words = {"completion", shell}}).out);
    return (folder_ / "script").string();
  }
  Outcome run(std::vector<std::string> argv) {
    return Process({.argv = std::move(argv), .folder = folder_.path()}).wait();
  }
  /// The first usual location at which the shell exists, or an empty text.
  static std::string path_of(const std::string& shell) {
    for (const char* folder : {"/bin/", "/usr/bin/", "/usr/local/bin/"})
      if (fs::exists(folder + shell)) return folder + shell;
    return {};
  }
  TempFolder folder_;
};

TEST_F(Shell, BashCompletesCommandsFlagsKeysAndValues) {
  const std::string bash = path_of("bash");
  if (bash.empty()) GTEST_SKIP() << "bash is not installed";
  const std::string file = script("bash");
  const auto offered = [&](const std::vector<std::string>& words) {
    const Outcome o = run({bash, "--noprofile", "--norc", "-c",
                           fmt::format("source {}; COMP_WORDS=('{}'); COMP_CWORD={}; _qtrain; printf '%s\\n' "
                                       "\"${{COMPREPLY[@]}}\"",
                                       file, fmt::join(words, "' '"), words.size() - 1)});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    return lines_of(o.out);
  };
  EXPECT_THAT(offered({"qtrain", "gen"}), ElementsAre("generate"));
  EXPECT_THAT(offered({"qtrain", ""}),
              AllOf(Contains("train"), Contains("run.json"), Contains("model"), Not(Contains("notes.txt"))));
  EXPECT_THAT(offered({"qtrain", "generate", "--load"}),
              UnorderedElementsAre("--load_in_4bit", "--load_in_8bit", "--load_in_fp8"));
  EXPECT_THAT(offered({"qtrain", "generate", "--device", "c"}), UnorderedElementsAre("cpu", "cuda"));
  EXPECT_THAT(offered({"qtrain", "generate", "--device", "=", "a"}), ElementsAre("auto"));
  EXPECT_THAT(offered({"qtrain", "chat", "--model", ""}), ElementsAre("model"));
  EXPECT_THAT(offered({"qtrain", "generate", "--model", "model", "--input", "no"}), ElementsAre("notes.txt"));
  EXPECT_THAT(offered({"qtrain", "validate", "ru"}), ElementsAre("run.json"));
  EXPECT_THAT(offered({"qtrain", "eval", "run.json", "lr_sch"}), Contains("lr_scheduler_type="));
  EXPECT_THAT(offered({"qtrain", "run.json", "lr_scheduler_type", "=", "inv"}), ElementsAre("inverse_sqrt"));
  EXPECT_THAT(offered({"qtrain", "run.json", "bf16", "="}), UnorderedElementsAre("true", "false"));
  EXPECT_THAT(offered({"qtrain", "run.json", "output_dir", "=", "mo"}), ElementsAre("model"));
  EXPECT_THAT(offered({"qtrain", "run.json", "--resu"}), ElementsAre("--resume"));
  EXPECT_THAT(offered({"qtrain", "run.json", "--resume", ""}), UnorderedElementsAre("auto", "never", "model"));
  EXPECT_THAT(offered({"qtrain", "eval", "run.json", "--limit", ""}), ElementsAre(""));  // no keys
  EXPECT_THAT(offered({"qtrain", "completion", ""}), UnorderedElementsAre("bash", "zsh", "fish"));
}

TEST_F(Shell, ZshReadsItsScript) {
  const std::string zsh = path_of("zsh");
  if (zsh.empty()) GTEST_SKIP() << "zsh is not installed";
  const std::string file = script("zsh");
  const Outcome o =
      run({zsh, "-f", "-c",
           fmt::format("autoload -Uz compinit && compinit -D -u && source {} && print ${{_comps[qtrain]}}", file)});
  EXPECT_EQ(o.out, "_qtrain\n") << o.err;
}

// The way that users install it: as a file in $fpath, which zsh reads at the first TAB.
TEST_F(Shell, ZshCompletesFromAFileInFpathAtTheFirstTab) {
  const std::string zsh = path_of("zsh");
  if (zsh.empty()) GTEST_SKIP() << "zsh is not installed";
  fs::create_directory(folder_ / "functions");
  write_file(folder_ / "functions/_qtrain", qtrain_ok({.words = {"completion", "zsh"}}).out);
  Process process({.argv = {zsh, "-f", "-i"}, .folder = folder_.path(), .environment = {"TERM=xterm"}, .columns = 120});
  process.type("fpath=(functions $fpath); autoload -Uz compinit; compinit -D -u\r");
  process.type("show() { print -u2 \"<$BUFFER>\"; BUFFER= }; zle -N show; bindkey '^O' show; print -u2 re''ady\r");
  ASSERT_TRUE(process.waits_for("ready")) << process.said();
  for (const auto& [typed, completed] : std::vector<std::pair<std::string, std::string>>{
           {"gen", "generate "},
           {"chat --mo", "chat --model "},
           {"chat --model mo", "chat --model model/"},
           {"run.json lr_scheduler_t", "run.json lr_scheduler_type="},
           {"run.json lr_scheduler_type=inv", "run.json lr_scheduler_type=inverse_sqrt "},
           {"run.json --resume ne", "run.json --resume never "},
           {"validate ru", "validate run.json "}}) {
    process.type("qtrain " + typed + "\t\x0f");
    EXPECT_TRUE(process.waits_for("<qtrain " + completed + ">", kShellAnswers)) << typed << "\n" << process.said();
  }
}

TEST_F(Shell, FishCompletesCommandsFlagsKeysAndValues) {
  const std::string fish = path_of("fish");
  if (fish.empty()) GTEST_SKIP() << "fish is not installed";
  const std::string file = script("fish");
  const auto offered = [&](const std::string& line) {
    const Outcome o = run({fish, "--no-config", "-c", fmt::format("source {}; complete -C '{}'", file, line)});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    std::vector<std::string> words;
    for (const std::string& l : lines_of(o.out)) words.push_back(l.substr(0, l.find('\t')));
    return words;
  };
  EXPECT_THAT(offered("qtrain gen"), Contains("generate"));
  EXPECT_THAT(offered("qtrain generate --load_in"),
              UnorderedElementsAre("--load_in_4bit", "--load_in_8bit", "--load_in_fp8"));
  EXPECT_THAT(offered("qtrain generate --device c"), UnorderedElementsAre("cpu", "cuda"));
  EXPECT_THAT(offered("qtrain chat --model "), ElementsAre("model/"));
  EXPECT_THAT(offered("qtrain train run.json --resume "), UnorderedElementsAre("auto", "never", "model/"));
  EXPECT_THAT(offered("qtrain run.json lr_sch"), Contains("lr_scheduler_type="));
  EXPECT_THAT(offered("qtrain eval run.json lr_scheduler_type=inv"), Contains("lr_scheduler_type=inverse_sqrt"));
  EXPECT_THAT(offered("qtrain completion "), UnorderedElementsAre("bash", "zsh", "fish"));
}

}  // namespace
}  // namespace qtrain::e2e
