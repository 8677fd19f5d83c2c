#include "report/outcome_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace qtrain {
namespace {

constexpr std::int64_t kVocabulary = 400;
const double kGuess = std::log(400.0);

struct Case {
  const char* name;
  std::vector<double> losses;
  bool warns;
  bool rate_is_high = false;
};

TEST(LossAdvice, IsAboutModelsThatUpdatesDestroyed) {
  const std::vector<Case> cases{
      {"no step", {}, false},
      {"one step", {kGuess}, false},
      {"it learns", {6.1, 5.0, 4.0}, false},
      {"random weights that hardly learn yet", {6.02, 6.01, 6.03, 5.98}, false},
      {"a guess, digit by digit", std::vector<double>(39, kGuess + 1e-6), true},
      {"it came to a guess", {2.0, 9.0, kGuess, kGuess, kGuess, kGuess, kGuess, kGuess, kGuess, kGuess}, true},
      {"worse than a guess and than before", {2.0, 30.0, 28.0}, true},
      {"worse than before, but better than a guess", {2.0, 2.8, 2.9}, false},
      {"worse than before, and near a guess", {4.9, 5.6, 5.5}, true},
      {"near a guess all the time", {6.02, 6.01, 6.03, 5.98}, true, true},
      {"it learns at a high rate", {6.02, 5.01, 4.03, 3.98}, false, true},
      {"noise above a guess", {6.0, 6.3, 6.2}, false},
      {"not finite ones do not count", {2.0, std::numeric_limits<double>::quiet_NaN(), 1.5}, false},
      {"high at first only", {30.0, 9.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0}, false},
  };
  for (const Case& c : cases) {
    LossCourse course;
    for (const double loss : c.losses) course.add(loss);
    EXPECT_EQ(advice_on_losses(course, {kVocabulary, c.rate_is_high}).has_value(), c.warns) << c.name;
  }
}

TEST(LossAdvice, NamesTheNumbers) {
  LossCourse course;
  for (const double loss : {2.0, 30.0, 28.0}) course.add(loss);
  EXPECT_EQ(course.last(), 29.0);
  EXPECT_THAT(
      *advice_on_losses(course, {.vocabulary = kVocabulary}),
      ::testing::AllOf(::testing::HasSubstr("2.0000 at the first step"), ::testing::HasSubstr("29.0000 at the end"),
                       ::testing::HasSubstr("5.9915"), ::testing::HasSubstr("learning_rate")));
}

}  // namespace
}  // namespace qtrain
