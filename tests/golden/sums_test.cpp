#include "tests/golden/sums.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

namespace qtrain::testing {
namespace {

std::vector<double> count_up(std::size_t count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

TEST(SignedSums, AreThoseOfTheScript) {
  EXPECT_THAT(signed_sums(count_up(40)),
              ::testing::ElementsAre(-226, -6, 98, 62, 184, -70, 56, 120, -222, -174, 128, 234, 98, 78, 58, 170));
  EXPECT_EQ(signed_sums(count_up(16)), count_up(16));
}

TEST(SignedSums, ChangeByAsMuchAsAnElement) {
  const std::vector<double> right = signed_sums(count_up(40));
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<double> wrong = count_up(40);
    wrong[i] += 0.5;
    const std::vector<double> sums = signed_sums(wrong);
    for (std::size_t j = 0; j < sums.size(); ++j) EXPECT_EQ(std::abs(sums[j] - right[j]), 0.5) << i << " " << j;
  }
}

TEST(SignedSums, ChangeIfElementsTradePlaces) {
  const std::vector<double> right = signed_sums(count_up(40));
  for (std::size_t i = 1; i < 40; ++i) {
    std::vector<double> wrong = count_up(40);
    std::swap(wrong[i - 1], wrong[i]);
    EXPECT_NE(signed_sums(wrong), right) << i;
  }
}

}  // namespace
}  // namespace qtrain::testing
