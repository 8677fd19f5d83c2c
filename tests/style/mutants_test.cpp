// The mistakes of tests/mutants can be planted: the text that they change exists, and so do the tests that detect them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/style/source_tree.h"

namespace qtrain::style {
namespace {

struct Mutant {
  std::string place, original, mutated;
  std::map<std::string, std::string> fields;  ///< file, after, kind, why, tests (from all lines)
};

std::vector<Mutant> mutants_of(const SourceFile& list) {
  std::vector<Mutant> mutants;
  std::istringstream lines(list.text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with('['))
      mutants.push_back({.place = list.path.filename().string() + " " + line});
    else if (line.starts_with("- ") || line == "-")
      mutants.back().original +=
          (mutants.back().original.empty() ? "" : "\n") + line.substr(std::min<std::size_t>(2, line.size()));
    else if (line.starts_with("+ ") || line == "+")
      mutants.back().mutated += line.substr(1);
    else if (!line.starts_with('#') && colon != std::string::npos)
      mutants.back().fields[line.substr(0, colon)] += line.substr(colon + 2) + "\n";
  }
  for (Mutant& mutant : mutants)
    for (const char* key : {"file", "after", "kind", "why"})
      if (std::string& value = mutant.fields[key]; !value.empty()) value.pop_back();
  return mutants;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::vector<Mutant> all_mutants(const std::vector<SourceFile>& tree) {
  std::vector<Mutant> all;
  for (const SourceFile& file : tree)
    if (file.path.parent_path() == "tests/mutants" && file.path.extension() == ".txt")
      for (Mutant& mutant : mutants_of(file)) all.push_back(std::move(mutant));
  return all;
}

TEST(Mutants, FitTheSources) {
  const std::vector<SourceFile> tree = source_tree(QTRAIN_SOURCE_DIR);
  std::map<std::string, std::string> texts;
  for (const SourceFile& file : tree) texts[file.path.generic_string()] = file.text;
  std::set<std::string> names;
  for (Mutant& mutant : all_mutants(tree)) {
    EXPECT_TRUE(names.insert(mutant.place).second) << mutant.place << " is there twice";
    EXPECT_FALSE(mutant.original.empty()) << mutant.place;
    EXPECT_NE(mutant.original, mutant.mutated) << mutant.place;
    EXPECT_FALSE(mutant.fields["why"].empty()) << mutant.place;
    const std::string &text = texts[mutant.fields["file"]], &after = mutant.fields["after"];
    const std::string& unique = after.empty() ? mutant.original : after;
    EXPECT_EQ(count_of(text, unique), 1u) << mutant.place << ": " << unique;
    const std::size_t from = after.empty() ? 0 : text.find(after);
    EXPECT_NE(text.find(mutant.original, from), std::string::npos) << mutant.place;
  }
  EXPECT_GT(names.size(), 60u);
}

// "All/CudaOp.FollowsDouble*:Sums.AreDouble" names tests that begin with "(CudaOp," and "(Sums, AreDouble)".
std::vector<std::string> beginnings_of(const std::string& filter) {
  std::vector<std::string> beginnings;
  std::istringstream parts(filter);
  for (std::string part; std::getline(parts, part, ':');) {
    const std::size_t dot = std::min(part.size(), part.find('.'));
    const std::size_t begin = part.find('/') < dot ? part.find('/') + 1 : 0;
    std::string test = dot < part.size() ? part.substr(dot + 1) : "*";
    test.resize(std::min(test.size(), test.find('/')));
    const bool whole = test.find_first_of("*?") == std::string::npos;
    beginnings.push_back("(" + part.substr(begin, dot - begin) + "," + (whole ? " " + test + ")" : ""));
  }
  return beginnings;
}

TEST(Mutants, NameTestsThatExist) {
  const std::vector<SourceFile> tree = source_tree(QTRAIN_SOURCE_DIR);
  std::string tests;
  for (const SourceFile& file : tree)
    if (file.folder() == "tests" && file.is_code()) tests += file.text;
  for (Mutant& mutant : all_mutants(tree)) {
    std::istringstream programs(mutant.fields["tests"]);
    std::string program, filter;
    for (int i = 0; programs >> program >> filter || i == 0; ++i) {
      EXPECT_TRUE(program.starts_with("test_")) << mutant.place;
      for (const std::string& beginning : beginnings_of(filter))
        EXPECT_NE(tests.find(beginning), std::string::npos) << mutant.place << ": " << beginning;
    }
  }
}

}  // namespace
}  // namespace qtrain::style
