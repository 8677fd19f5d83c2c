// Patterns of a data set's card, which somebody else wrote, take time in proportion to the files that are there.
#include "data/source/globs.h"

#include <chrono>

#include "data/source/files.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string times_over(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

class GlobPatterns : public test::DataFolder {
 protected:
  void write_deep_file() const { write(times_over("a/", kDepth) + "x.jsonl", "{}"); }
  static constexpr int kDepth = 40;
};

// Each `**` in a row, or after a `*`, gives every folder again. Looking at 41 folders takes at most 41 x 3 names for
// each part of a pattern.
TEST_F(GlobPatterns, LookAtEachFolderOnceForEveryPart) {
  write_deep_file();
  for (const std::string& begin : {times_over("**/", 300), times_over("**/*/", 12), times_over("**/a/", 12),
                                   times_over("**/*/**/", 8), times_over("**/a*/?/", 8)}) {
    constexpr std::int64_t kParts = 40;
    Globs globs(kParts * (kDepth + 1) * 3);
    const auto found = globs.expand(folder_ / (begin + "x.jsonl"));
    ASSERT_EQ(found.size(), 1u) << begin;
    EXPECT_EQ(found[0], folder_ / (times_over("a/", kDepth) + "x.jsonl")) << begin;
  }
}

TEST_F(GlobPatterns, StopAtTheLimitOfNames) {
  for (int i = 0; i < 10; ++i) write("f" + std::to_string(i) + ".jsonl", "{}");
  EXPECT_EQ(Globs(100).expand(folder_ / "*.jsonl").size(), 10u);
  Globs globs(100);
  EXPECT_THAT(test::error_of(ErrorKind::input,
                             [&] {
                               for (int i = 0; i < 20; ++i) globs.expand(folder_ / "*.jsonl");
                             }),
              HasSubstr("too many names"));
}

TEST_F(GlobPatterns, RelativeOnesBeginInTheCurrentFolder) {
  write("b.jsonl", "{}");
  write("deep/a.jsonl", "{}");
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(Globs().expand("**/*.jsonl"), (std::vector<fs::path>{"./b.jsonl", "deep/a.jsonl"}));
  EXPECT_EQ(Globs().expand("*.jsonl"), std::vector<fs::path>{"b.jsonl"});
  fs::current_path(before);
}

// 36 kB with a thousand splits of one name took over a minute, as did a thousand patterns for 300 files.
TEST_F(GlobPatterns, OfACardAreReadOnce) {
  constexpr int kFiles = 300, kEntries = 3000;
  for (int i = 0; i < kFiles; ++i) write("x" + std::to_string(i) + ".jsonl", "{}");
  CardSplits same_split, same_pattern{{.name = "train", .files = {}}}, many{{.name = "train", .files = {}}};
  for (int i = 0; i < kEntries; ++i) {
    same_split.push_back({.name = "train", .files = {"x0.jsonl"}});
    same_pattern[0].files.emplace_back("*");
    many[0].files.push_back("x" + times_over("*", i % 50) + times_over("?", i / 1000) + "*.jsonl");
  }
  const struct {
    const char* name;
    const CardSplits& splits;
    std::size_t files;
  } cases[] = {{"splits of one name", same_split, 1}, {"one pattern", same_pattern, kFiles}, {"many", many, kFiles}};
  for (const auto& c : cases) {
    WantedSplit wanted(Split::train);
    wanted.cards[folder_.string()] = {.splits = c.splits, .only = true};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(resolve_data_files({folder_.string()}, wanted).size(), c.files) << c.name;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << c.name;
  }
}

TEST_F(GlobPatterns, OfACardThatFindNothingAreListedInPart) {
  WantedSplit wanted(Split::train);
  CardSplits splits{{.name = "train", .files = {}}};
  for (int i = 0; i < 100; ++i) splits[0].files.push_back("none" + std::to_string(i));
  wanted.cards[folder_.string()] = {.splits = splits, .only = true};
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { resolve_data_files({folder_.string()}, wanted); }),
              HasSubstr("none11, and 88 more"));
}

}  // namespace
}  // namespace qtrain
