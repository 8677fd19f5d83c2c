// The progress line of a run shows the loss of the logged row, and a remaining time that does not jump.
#include "report/run_progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qtrain {
namespace {

TEST(RunProgress, TheLossIsTheMeanSinceTheLastRow) {
  RunState state;
  for (const double loss : {4.0, 1.0, 1.0}) state.add_loss(loss);
  EXPECT_EQ(progress_of(state, 10, {.seconds = 1, .steps = 3, .tokens = 30}).loss, 2.0);
  state.begin_row();
  state.add_loss(0.5);
  EXPECT_EQ(state.mean_loss(), 0.5);
  EXPECT_EQ(state.loss_total, 6.5) << "the sum over all steps, for train_loss";
  state.add_loss(std::nan(""));
  EXPECT_EQ(state.mean_loss(), 0.5) << "steps that are not finite do not count";
  EXPECT_EQ(state.loss_steps, 4);
  EXPECT_EQ(state.mean_loss_of_all(), 6.5 / 4);
}

TEST(RunProgress, WhereNoLossIsFiniteThereIsNoMean) {
  RunState state;
  state.add_loss(std::nan(""));
  EXPECT_EQ(state.mean_loss(), std::nullopt);
  EXPECT_EQ(state.mean_loss_of_all(), std::nullopt);
  EXPECT_TRUE(std::isnan(progress_of(state, 10, {.seconds = 1, .steps = 1, .tokens = 3}).loss.value()));
}

// 100 steps that alternate between 0.1 s for short rows and 1.9 s for long ones.
TEST(RunProgress, TheTimeLeftFollowsStepsAndNotTheLastOne) {
  RunState state;
  Pace pace;
  for (int step = 1; step <= 100; ++step) {
    const bool is_long = step % 2 == 0;
    state.step = step;
    pace.seconds += is_long ? 1.9 : 0.1;
    pace.tokens += is_long ? 190 : 10;
    ++pace.steps;
    if (step < 10) continue;
    const double left = 100 - step;  // steps take one second on average
    const Progress p = progress_of(state, 100, pace);
    EXPECT_NEAR(*p.eta_seconds, left, 0.1 * left) << step;  // after 11 steps the mean is 0.9 / 11 too low
    EXPECT_NEAR(*p.tokens_per_second, 100, 1e-9);
  }
}

TEST(RunProgress, StepsOfEarlierStartsDoNotCount) {
  RunState state;
  state.step = 90;
  EXPECT_EQ(progress_of(state, 100, {.seconds = 20, .steps = 10, .tokens = 1}).eta_seconds, 20);
}

}  // namespace
}  // namespace qtrain
