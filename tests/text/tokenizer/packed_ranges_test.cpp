#include "text/tokenizer/packed_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(PackedRanges, StartAtADistanceFromTheRangeBefore) {
  const std::vector<CodePointRange> rows = unpacked_ranges("41+19:Lu 7 1+f:M 10f000:P");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(rows[0].first == 'A' && rows[0].last == 'Z' && rows[0].category == "Lu");
  EXPECT_TRUE(rows[1].first == 'a' && rows[1].last == 'a' && rows[1].category.empty());
  EXPECT_TRUE(rows[2].first == 'b' && rows[2].last == 'q' && rows[2].category == "M");
  EXPECT_TRUE(rows[3].first == 0x10f071 && rows[3].last == 0x10f071 && rows[3].category == "P");
}

TEST(PackedRanges, HaveValues) {
  EXPECT_THAT(unpacked_values("0=0 41=1a 1a=-a56b"), ElementsAre(Pair(U'\0', 0), Pair(U'A', 26), Pair(U'[', -42347)));
}

TEST(PackedRanges, OfTheProgramAreInOrder) {
  for (const auto* table :
       {&characters_since_unicode_14(), &han_characters(), &numeric_since_unicode_14(), &not_yet_punctuation(),
        &once_punctuation(), &normal_form_characters(), &accent_characters()}) {
    std::int64_t end = -1;
    for (const CodePointRange& row : *table) {
      EXPECT_TRUE(row.first > end && row.last >= row.first && row.last <= 0x10ffff);
      end = row.last;
    }
  }
  EXPECT_EQ(normal_form_characters().size(), 265u);
  EXPECT_EQ(script_runs().size(), 1489u);
  EXPECT_THAT(lowercase_since_unicode_14().front(), Pair(U'\u1c89', 1));
}

}  // namespace
}  // namespace qtrain
