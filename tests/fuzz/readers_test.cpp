// SECURITY.md says that every reader has a fuzzer. readers.txt lists them, and this test compares the list with the
// sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "core/os/file.h"
#include "tests/fuzz/targets.h"

namespace qtrain::fuzz {
namespace {

/// For each source, the targets that reach it; none if the list gives a reason.
std::map<std::string, std::set<std::string>> listed_readers() {
  std::map<std::string, std::set<std::string>> readers;
  std::istringstream lines(read_text(std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/fuzz/readers.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t colon = line.find(": ");
    std::set<std::string>& targets = readers[line.substr(0, colon)];
    if (line.compare(colon + 2, 2, "- ") == 0) continue;
    std::istringstream words(line.substr(colon + 2));
    for (std::string word; words >> word;) targets.insert(word);
    EXPECT_FALSE(targets.empty()) << line;
  }
  return readers;
}

bool reads(const std::string& source) {
  constexpr std::array kWords{"read_json(", "read_text(", "parse_json(", "for_each_chunk(",
                              "MappedFile", "ifstream",   "FileBytes"};
  return std::ranges::any_of(kWords, [&](const char* word) { return source.find(word) != source.npos; });
}

/// The sources that open files, or parse text that may come from one.
std::set<std::string> found_readers() {
  const std::filesystem::path root = QTRAIN_SOURCE_DIR;
  std::set<std::string> found;
  for (const char* folder : {"app", "config", "convert", "core", "data", "dist", "hub", "kernels", "model", "monitor",
                             "plan", "quant", "report", "text", "train"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".cpp" && reads(read_text(entry.path())))
        found.insert(entry.path().lexically_relative(root).string());
  return found;
}

TEST(Readers, AreListedWithTheirTargets) {
  const auto listed = listed_readers();
  for (const std::string& source : found_readers())
    EXPECT_TRUE(listed.contains(source)) << source
                                         << " reads: name its target in tests/fuzz/readers.txt, or why it "
                                            "needs none";
}

TEST(Readers, AndTargetsThatAreListedExist) {
  std::set<std::string> targets;
  for (const Target& target : fuzz::targets()) targets.emplace(target.name);
  for (const auto& [source, names] : listed_readers()) {
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(QTRAIN_SOURCE_DIR) / source)) << source;
    for (const std::string& name : names) EXPECT_TRUE(targets.contains(name)) << source << ": " << name;
  }
}

TEST(Readers, HaveSeedsInTheRepository) {
  for (const Target& target : fuzz::targets()) {
    EXPECT_FALSE(target.seeds.empty()) << target.name;
    for (const std::string& seed : target.seeds)
      EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(QTRAIN_SOURCE_DIR) / seed))
          << target.name << ": " << seed;
  }
}

}  // namespace
}  // namespace qtrain::fuzz
