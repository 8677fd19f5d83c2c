// The command lines in all documentation pages use commands, flags and config keys that exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/cli/arguments.h"
#include "app/cli/command_table.h"
#include "config/keys.h"
#include "core/os/file.h"
#include "tests/markdown.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

/// Splits a shell text into simple commands: joins lines that end in a backslash, splits at `|`, `;` and `&`, and drops
/// redirections, comments and heredoc bodies.
class ShellText {
 public:
  explicit ShellText(std::string_view text) : text_(text) {}

  std::vector<Words> commands() {
    while (at_ < text_.size()) take();
    end_command();
    return commands_;
  }

 private:
  void take() {
    const char c = text_[at_];
    if (c == '\n') {
      end_command();
      skip_heredoc();
    } else if (c == '|' || c == ';' || c == '&') {
      end_command(), ++at_;
    } else if (c == '#' && word_.empty()) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '<' || c == '>') {
      redirect();
    } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      at_ += 2;
    } else if (c == ' ') {
      end_word(), ++at_;
    } else {
      take_word();
    }
  }
  void take_word() {
    const char c = text_[at_];
    if (c != '\'' && c != '"') {
      word_ += c, ++at_;
      return;
    }
    const std::size_t end = std::min(text_.find(c, at_ + 1), text_.size());
    word_ += text_.substr(at_ + 1, end - at_ - 1);
    at_ = std::min(end + 1, text_.size());
  }
  void redirect() {
    const bool heredoc = text_.substr(at_).starts_with("<<");
    if (word_ == "1" || word_ == "2") word_.clear();
    end_word();
    while (at_ < text_.size() && std::string_view("<>&' ").find(text_[at_]) != std::string_view::npos) ++at_;
    const std::size_t end = std::min(text_.find_first_of(" \n'", at_), text_.size());
    if (heredoc) heredoc_ = text_.substr(at_, end - at_);
    at_ = end + (end < text_.size() && text_[end] == '\'');
  }
  void skip_heredoc() {
    ++at_;
    if (heredoc_.empty()) return;
    const std::size_t end = text_.find("\n" + heredoc_ + "\n", at_ - 1);
    at_ = end == text_.npos ? text_.size() : end + heredoc_.size() + 2;
    heredoc_.clear();
  }
  void end_word() {
    if (!word_.empty()) words_.push_back(std::move(word_));
    word_.clear();
  }
  void end_command() {
    end_word();
    if (!words_.empty()) commands_.push_back(std::move(words_));
    words_.clear();
  }

  std::string text_, word_, heredoc_;
  std::size_t at_ = 0;
  Words words_;
  std::vector<Words> commands_;
};

/// The words after `qtrain` if the command starts it, directly or through another program.
Words words_of_program(Words words) {
  const auto at =
      std::ranges::find_if(words, [](const std::string& w) { return w == "qtrain" || w.ends_with("/qtrain"); });
  const bool starts = std::all_of(words.begin(), at, [](const std::string& w) {
    return w == "env" || w == "torchrun" || w.starts_with("--") || w.find('=') != w.npos;
  });
  if (at == words.end() || !starts) return {};
  return {at + 1, words.end()};
}

/// What is wrong with one call of the program; empty if nothing is.
std::string problem_of(Words words) {
  if (words.empty() || words[0] == "--version" || words[0] == "--help") return {};
  const Command* command = find_command(words[0]);
  if (command != nullptr) words.erase(words.begin());
  if (command == nullptr && words[0].find('.') == std::string::npos) return "no such command: " + words[0];
  try {
    const Arguments arguments(command ? *command : *find_command("train"), words, std::make_shared<Log>());
    const std::vector<std::string_view> known = known_keys();
    for (const auto& [key, value] : arguments.overrides())
      if (std::ranges::find(known, key.substr(0, key.find('.'))) == known.end()) return "no such key: " + key;
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::vector<std::string> problems_of(std::string_view page) {
  std::vector<std::string> problems;
  for (const test::FencedBlock& block : test::fenced_blocks(page))
    for (const Words& words : ShellText(block.text).commands())
      if (const std::string problem = problem_of(words_of_program(words)); !problem.empty())
        problems.push_back("block at line " + std::to_string(block.line) + ": " + problem);
  return problems;
}

// Building the site (scripts/test.sh --checks) also finds pages that are in no section; this test does so without
// mkdocs.
TEST(Pages, EachIsInASectionOfTheSite) {
  namespace fs = std::filesystem;
  const fs::path root = QTRAIN_SOURCE_DIR;
  const std::string sections = read_text(root / "docs/mkdocs.yml");
  int pages = 0;
  for (const char* folder : {"docs", "examples"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".md") continue;
      EXPECT_THAT(sections, ::testing::HasSubstr(" " + entry.path().lexically_relative(root).string() + "\n"));
      ++pages;
    }
  EXPECT_GT(pages, 30);
}

TEST(Pages, CommandsFlagsAndKeysExist) {
  const std::filesystem::path root = QTRAIN_SOURCE_DIR;
  std::vector<std::filesystem::path> pages = test::pages_below(root / "docs");
  pages.insert(pages.end(), {root / "README.md", root / "CONTRIBUTING.md"});
  for (const auto& page : test::pages_below(root / "examples")) pages.push_back(page);
  for (const auto& page : pages) EXPECT_THAT(problems_of(read_text(page)), IsEmpty()) << page;
}

TEST(Pages, EachCommandIsInTheTablesOfCommands) {
  const std::string page = read_text(std::filesystem::path(QTRAIN_SOURCE_DIR) / "docs/commands.md");
  for (const Command& command : commands())
    EXPECT_THAT(page, ::testing::ContainsRegex("`qtrain " + std::string(command.name) + "[ `]")) << command.name;
}

TEST(Pages, WhatDoesNotExistIsFound) {
  const auto of = [](const std::string& line) { return problems_of("```sh\n" + line + "\n```\n"); };
  EXPECT_THAT(of("qtrain a.json max_steps=2 && qtrain eval a.json --base # with it"), IsEmpty());
  EXPECT_THAT(of("cat > a.json <<'END'\nqtrain nothing\nEND\nqtrain config a.json > b 2>&1"), IsEmpty());
  EXPECT_THAT(of("X=1 qtrain a.json \\\n  max_step=2"), ElementsAre(HasSubstr("no such key: max_step")));
  EXPECT_THAT(of("true; build/cpu/bin/qtrain eval a.json --bas | head"), ElementsAre(HasSubstr("--bas")));
  EXPECT_THAT(of("qtrain evaluate a.json"), ElementsAre(HasSubstr("no such command: evaluate")));
  EXPECT_THAT(of("qtrain merge --model m a.json"), ElementsAre(HasSubstr("a.json")));
  EXPECT_THAT(problems_of("qtrain evaluate a.json\n"), IsEmpty());
}

}  // namespace
}  // namespace qtrain
