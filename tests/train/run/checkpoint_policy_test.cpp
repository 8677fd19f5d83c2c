#include "train/run/checkpoint_policy.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::UnorderedElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr StepPlan kPlan{.batches = 4, .accumulation = 1, .updates_per_epoch = 4, .max_steps = 10};

using Steps = std::vector<std::int64_t>;
using Configure = std::function<void(TrainingSection&)>;

TrainingSection section(const Configure& configure) {
  TrainingSection t;
  configure(t);
  return t;
}

Configure saves(SaveStrategy strategy) {
  return [=](TrainingSection& t) { t.save_strategy = strategy, t.save_steps = 3; };
}

/// The metrics of evaluations after steps 1, 2, ..., and the expected results.
struct Evaluations {
  std::string name;
  Configure config;
  std::vector<double> metrics;
  Steps saved;                 ///< steps after which a checkpoint is due
  std::optional<double> best;  ///< metric at the end
  std::int64_t best_step = 0;
};

void expect_of(const Evaluations& e) {
  const TrainingSection t = section(e.config);
  CheckpointPolicy policy(t, kPlan);
  RunState state;
  Steps saved;
  for (const double metric : e.metrics) {
    ++state.step;
    policy.evaluated(state, metric);
    if (policy.save_due(state)) saved.push_back(state.step);
  }
  EXPECT_EQ(saved, e.saved) << e.name;
  EXPECT_EQ(state.best_metric, e.best) << e.name;
  EXPECT_EQ(state.best_step, e.best_step) << e.name;
}

TEST(CheckpointPolicy, SavesWhenDueAndKnowsTheBest) {
  const auto loss = [](SaveStrategy strategy) {
    return [=](TrainingSection& t) { saves(strategy)(t), t.metric_for_best_model = "loss"; };
  };
  const auto greater = [](TrainingSection& t) { saves(SaveStrategy::best)(t), t.greater_is_better = true; };
  const std::vector<double> falling_and_rising{5, 4, 4, 6, 3, 7};
  const std::vector<Evaluations> cases{
      {"no", saves(SaveStrategy::no), falling_and_rising, {}, {}, 0},
      {"steps, no best asked for", saves(SaveStrategy::steps), falling_and_rising, {3, 6}, {}, 0},
      {"epoch, no best asked for", saves(SaveStrategy::epoch), falling_and_rising, {4}, {}, 0},
      {"steps, the least loss is the best", loss(SaveStrategy::steps), falling_and_rising, {3, 6}, 3, 5},
      {"no saves, but a best", loss(SaveStrategy::no), falling_and_rising, {}, 3, 5},
      {"best: each better one, not an equal one", saves(SaveStrategy::best), falling_and_rising, {1, 2, 5}, 3, 5},
      {"best: the greatest", greater, falling_and_rising, {1, 4, 6}, 7, 6},
      {"NaN and infinity are never the best", saves(SaveStrategy::best), {kNan, 5, kNan, -kInfinity, 4}, {2, 5}, 4, 5},
      {"infinity is not the greatest", greater, {kInfinity, 1}, {2}, 1, 2}};
  for (const Evaluations& e : cases) expect_of(e);
}

TEST(CheckpointPolicy, ABestOfAnEarlierStartIsSurpassedOrStays) {
  const TrainingSection t = section(saves(SaveStrategy::best));
  CheckpointPolicy policy(t, kPlan);
  RunState state;
  state.step = 4, state.best_metric = 2, state.best_step = 3, state.best_checkpoint = "out/checkpoint-3";
  policy.evaluated(state, 2.5);
  EXPECT_FALSE(policy.save_due(state));
  EXPECT_FALSE(CheckpointPolicy::is_best(state));
  EXPECT_EQ(state.best_step, 3);
  state.step = 5;
  policy.evaluated(state, 1.5);
  EXPECT_TRUE(policy.save_due(state));
  EXPECT_TRUE(CheckpointPolicy::is_best(state));
  state.step = 6;
  EXPECT_FALSE(policy.save_due(state)) << "only after the step that was evaluated";
  EXPECT_FALSE(CheckpointPolicy::is_best(state));
}

TEST(CheckpointPolicy, WithoutAnEvaluationNoStepIsTheBest) {
  EXPECT_FALSE(CheckpointPolicy::is_best(RunState{})) << "not step 0 either";
}

TEST(CheckpointPolicy, RotationKeepsTheNewestAndTheBest) {
  RunState state;
  state.best_checkpoint = "elsewhere/checkpoint-2";
  const TrainingSection unlimited, two = section([](TrainingSection&t) { t.save_total_limit = 2; });
  EXPECT_FALSE(CheckpointPolicy(unlimited, kPlan).rotation(state, "out/checkpoint-6"));
  const auto rotation = CheckpointPolicy(two, kPlan).rotation(state, "out/checkpoint-6");
  ASSERT_TRUE(rotation);
  EXPECT_EQ(rotation->limit, 2);
  EXPECT_THAT(rotation->keep, UnorderedElementsAre("checkpoint-6", "checkpoint-2"));
}

TEST(CheckpointPolicy, TheFinalModelIsTheBestOnlyIfAskedForAndSaved) {
  RunState saved, never_saved;
  saved.best_checkpoint = "out/checkpoint-2";
  never_saved.best_metric = 1, never_saved.best_step = 2;
  const TrainingSection last, best = section([](TrainingSection&t) { t.load_best_model_at_end = true; });
  EXPECT_EQ(CheckpointPolicy(best, kPlan).final_checkpoint(saved), fs::path("out/checkpoint-2"));
  EXPECT_FALSE(CheckpointPolicy(best, kPlan).final_checkpoint(never_saved));
  EXPECT_FALSE(CheckpointPolicy(last, kPlan).final_checkpoint(saved));
}

}  // namespace
}  // namespace qtrain
