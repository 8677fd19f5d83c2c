#include "convert/merge.h"

#include <gtest/gtest.h>

#include <limits>

namespace qtrain::testing {
namespace {

TEST(MergeLosses, DifferNoMoreThanRoundingExplains) {
  constexpr double kBf16 = 0x1p-8, kF32 = 0x1p-24, kNan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    const char* name;
    MergeLosses losses;
    MergeReport report;
    bool explained;
  };
  const Case cases[] = {
      {"same", {2, 2}, {1, 0, kF32}, true},
      {"sums in another order", {2, 2.00001}, {1, 0, kF32}, true},
      {"float32 rounds less", {2, 2.02}, {1, 0, kF32}, false},
      {"bfloat16 rounds more", {2, 2.02}, {1, 0.01, kBf16}, true},
      {"part of the adapter was left out", {2, 2.4}, {1, 0.01, kBf16}, false},
      {"the update does little, and half of it is lost", {2, 2.4, 2.05}, {1, 0.5, kBf16}, false},
      {"the update does much, and half of it is lost", {2, 2.4, 3}, {1, 0.5, kBf16}, true},
      {"nothing was merged", {2, 3, 3}, {1, 0, kF32}, false},
      {"a large loss rounds by more", {200, 200.015}, {1, 0, kF32}, true},
      {"only one is a number", {2, kNan}, {1, 0, kBf16}, false},
      {"only the other is a number", {kNan, 2}, {1, 0, kBf16}, false},
      {"none is a number", {kNan, kNan}, {1, 0, kBf16}, true},
  };
  for (const Case& c : cases) EXPECT_EQ(explained_by_rounding(c.losses, c.report), c.explained) << c.name;
}

}  // namespace
}  // namespace qtrain::testing
