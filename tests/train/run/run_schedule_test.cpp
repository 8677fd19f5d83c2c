#include "train/run/run_schedule.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace qtrain {
namespace {

using Steps = std::vector<std::int64_t>;
using Due = bool (RunSchedule::*)(std::int64_t) const;

// 10 optimizer steps of one micro-batch, 4 per epoch: epochs end after steps 4 and 8.
constexpr StepPlan kFourBatches{.batches = 4, .accumulation = 1, .updates_per_epoch = 4, .max_steps = 10};

/// A config, and the steps after which it makes something due.
struct Case {
  std::string name;
  std::function<void(TrainingSection&)> config;
  Steps steps;
};

Steps due_steps(const Case& c, Due due) {
  TrainingSection t;
  c.config(t);
  const RunSchedule schedule(t, kFourBatches);
  Steps steps;
  for (std::int64_t step = 1; step <= kFourBatches.max_steps; ++step)
    if ((schedule.*due)(step)) steps.push_back(step);
  return steps;
}

void expect_due(const std::vector<Case>& cases, Due due) {
  for (const Case& c : cases) EXPECT_EQ(due_steps(c, due), c.steps) << c.name;
}

TEST(RunSchedule, LogsByStepsOrEpochsAndTheFirstStepIfAsked) {
  const auto by = [](EvalStrategy strategy, double steps) {
    return [=](TrainingSection& t) { t.logging_strategy = strategy, t.logging_steps = steps; };
  };
  expect_due({{"no", by(EvalStrategy::no, 1), {}},
              {"steps", by(EvalStrategy::steps, 3), {3, 6, 9}},
              {"a share of the run", by(EvalStrategy::steps, 0.25), {3, 6, 9}},
              {"more than the run has", by(EvalStrategy::steps, 500), {}},
              {"epoch, and the last one is cut short", by(EvalStrategy::epoch, 3), {4, 8, 10}},
              {"first step", [](TrainingSection& t) { t.logging_steps = 5, t.logging_first_step = true; }, {1, 5, 10}}},
             &RunSchedule::logs_after);
}

TEST(RunSchedule, EvaluatesByStepsOrEpochsBehindTheDelay) {
  const auto by = [](EvalStrategy strategy, std::optional<double> steps, double delay = 0) {
    return [=](TrainingSection& t) {
      t.eval_strategy = strategy, t.eval_steps = steps, t.eval_delay = delay, t.logging_steps = 3;
    };
  };
  expect_due({{"no", by(EvalStrategy::no, 1), {}},
              {"steps and the last one", by(EvalStrategy::steps, 4), {4, 8, 10}},
              {"as often as rows are logged", by(EvalStrategy::steps, {}), {3, 6, 9, 10}},
              {"epoch", by(EvalStrategy::epoch, 3), {4, 8, 10}},
              {"a delay in steps", by(EvalStrategy::steps, 4, 8), {8, 10}},
              {"a delay in epochs", by(EvalStrategy::epoch, {}, 2), {8, 10}},
              {"a delay beyond the end", by(EvalStrategy::epoch, {}, 3), {}}},
             &RunSchedule::evaluates_after);
}

TEST(RunSchedule, SavesByStepsOrEpochsAndAtTheEnd) {
  const auto by = [](SaveStrategy strategy, double steps) {
    return [=](TrainingSection& t) { t.save_strategy = strategy, t.save_steps = steps; };
  };
  expect_due({{"no", by(SaveStrategy::no, 1), {}},
              {"best is a matter of evaluations", by(SaveStrategy::best, 1), {}},
              {"steps and the last one", by(SaveStrategy::steps, 4), {4, 8, 10}},
              {"a share of the run", by(SaveStrategy::steps, 0.5), {5, 10}},
              {"only the last one", by(SaveStrategy::steps, 500), {10}},
              {"epoch", by(SaveStrategy::epoch, 3), {4, 8, 10}}},
             &RunSchedule::saves_after);
}

TEST(RunSchedule, ARunWithFewerStepsThanAreDoneIsAtItsEnd) {
  const TrainingSection t;
  EXPECT_FALSE(RunSchedule(t, kFourBatches).is_last(9));
  EXPECT_TRUE(RunSchedule(t, kFourBatches).is_last(10));
  EXPECT_TRUE(RunSchedule(t, kFourBatches).is_last(11));
}

}  // namespace
}  // namespace qtrain
