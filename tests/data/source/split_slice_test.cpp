// Expected rows are those of datasets 4 (ReadInstruction.from_spec(...).to_absolute).
#include "data/source/split_slice.h"

#include <gmock/gmock.h>

#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

TEST(SplitSlices, AreTheRowsThatTheLibraryTakes) {
  const struct {
    const char* text;
    std::int64_t size, begin, end;
  } cases[] = {
      {"train", 10, 0, 10},
      {"train[:]", 10, 0, 10},
      {"train[:2]", 10, 0, 2},
      {"train[3:]", 10, 3, 10},
      {"train[10:20]", 15, 10, 15},
      {"train[10:20]", 5, 5, 5},
      {"train[-5:]", 10, 5, 10},
      {"train[:-5]", 10, 0, 5},
      {"train[-50:]", 10, 0, 10},
      {"train[:20%]", 10, 0, 2},
      {"train[:50%]", 5, 0, 2},
      {"train[:50%]", 7, 0, 4},
      {"train[:33%]", 10, 0, 3},
      {"train[-20%:]", 10, 8, 10},
      {"train[80%:]", 11, 9, 11},
      {"train[10%:30%]", 15, 2, 4},
      {"train[:100%]", 3, 0, 3},
      {"train[:1_000]", 2000, 0, 1000},
      {"train[5:3]", 10, 5, 5},
      {"train[:1%]", 10, 0, 0},
      {"train[:1%](closest)", 100, 0, 1},
      {"train_sft[:1]", 10, 0, 1},
      {"train[:50%](pct1_dropremainder)", 199, 0, 50},
  };
  for (const auto& c : cases) {
    const std::vector<SplitSlice> slices = read_split(c.text);
    ASSERT_EQ(slices.size(), 1u) << c.text;
    EXPECT_EQ(slices[0].rows_of(c.size), std::make_pair(c.begin, c.end)) << c.text << " of " << c.size;
  }
}

TEST(SplitSlices, StandOneBehindTheOther) {
  std::vector<std::string> names;
  for (const SplitSlice& slice : read_split("train[:10%] + test+validation")) names.push_back(slice.name);
  EXPECT_THAT(names, ::testing::ElementsAre("train", "test", "validation"));
  EXPECT_TRUE(read_split("").empty());
}

TEST(SplitSlices, OtherFormsAreUsageErrors) {
  for (const char* text :
       {"train[", "train[2]", "train[a:]", "train[:2", "train]", "[:2]", "train[:2]x", "train+", "train[:101%]",
        "train[:2%](up)", "train[:2](closest)", "train test", "train[99999999999999999999:]", "+"})
    EXPECT_THAT(test::error_of(ErrorKind::usage, [&] { read_split(text); }), HasSubstr("split \"")) << text;
  EXPECT_THAT(test::error_of(ErrorKind::usage, [] { read_split("train[:5%](pct1_dropremainder)")[0].rows_of(99); }),
              HasSubstr("whole percents"));
}

}  // namespace
}  // namespace qtrain
