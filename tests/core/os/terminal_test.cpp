#include "core/os/terminal.h"

#include <gmock/gmock.h>

namespace qtrain {
namespace {

using ::testing::ElementsAre;

TEST(Wrapped, CutsBetweenWords) {
  EXPECT_THAT(wrapped("one two three", 7), ElementsAre("one two", "  three"));
  EXPECT_THAT(wrapped("one two three", 100), ElementsAre("one two three"));
  EXPECT_THAT(wrapped("  in two three", 8), ElementsAre("  in two", "    three"));
  EXPECT_THAT(wrapped("a-long-word b", 5), ElementsAre("a-long-word", "  b"));
  EXPECT_THAT(wrapped("", 5), ElementsAre(""));
  EXPECT_THAT(wrapped("   ", 5), ElementsAre("   "));
}

TEST(FirstColumns, CountsCharacters) {
  EXPECT_EQ(first_columns("abc", 2), "ab");
  EXPECT_EQ(first_columns("abc", 3), "abc");
  EXPECT_EQ(first_columns("a▁█c", 3), "a▁█");
  EXPECT_EQ(first_columns("▁", 0), "");
}

}  // namespace
}  // namespace qtrain
