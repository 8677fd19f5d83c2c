#include "kernels/gemm_trials.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace qtrain {
namespace {

constexpr double kFails = std::numeric_limits<double>::infinity();

/// Chooses among candidates of constant times, which `disturb(run)` multiplies; counts the runs of each.
struct Trials {
  std::vector<double> times;
  std::function<double(int run)> disturb = [](int) { return 1; };
  std::vector<int> runs = std::vector<int>(times.size());
  int all = 0;

  std::size_t choose() {
    return fastest_candidate(times.size(), [&](std::size_t i) {
      ++runs[i];
      return times[i] * disturb(all++);
    });
  }
};

std::size_t chosen_of(std::vector<double> times) {
  return Trials{std::move(times)}.choose();
}

TEST(GemmTrials, ChooseTheFastestOrTheFirst) {
  EXPECT_EQ((chosen_of({3, 2, 1, 4})), 2U);
  EXPECT_EQ((chosen_of({1, 0.98})), 0U) << "the gain may be noise";
  EXPECT_EQ((chosen_of({1, 0.98, 0.96})), 2U);
  EXPECT_EQ((chosen_of({1})), 0U);
  EXPECT_EQ((chosen_of({kFails, 5, kFails})), 1U);
  EXPECT_EQ((chosen_of({kFails, kFails})), 0U) << "the library's error is reported where the GEMM runs";
}

TEST(GemmTrials, AreNotMisledByDisturbances) {
  EXPECT_EQ((Trials{{1, 0.9, 1.1}, [](int run) { return run % 3 == 0 ? 2 : 1; }}.choose()), 1U) << "other work";
  EXPECT_EQ((Trials{{1, 0.9, 0.95}, [](int run) { return 1 + 0.02 * run; }}.choose()), 1U) << "the clock slows down";
  EXPECT_EQ((Trials{{1, 1.1, 1.2}, [](int run) { return run == 0 ? 50 : 1; }}.choose()), 0U) << "the first run of all";
}

TEST(GemmTrials, SpendNoTimeOnHopelessCandidates) {
  Trials t{{1, 1.2, 1.4, 9}};
  EXPECT_EQ(t.choose(), 0U);
  EXPECT_GT(t.runs[1], 1) << "it may have been disturbed";
  EXPECT_EQ(t.runs[2], 1);
  EXPECT_EQ(t.runs[3], 1);
}

}  // namespace
}  // namespace qtrain
