#include "train/setup/step_plan.h"

#include <gtest/gtest.h>

#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

std::int64_t steps(double epochs, std::int64_t batches, std::int64_t accumulation) {
  TrainingSection t;
  t.num_train_epochs = epochs;
  t.gradient_accumulation_steps = accumulation;
  return make_step_plan(t, batches).max_steps;
}

// As in transformers: ceil(num_train_epochs * updates per epoch), where the last update of an epoch has fewer
// micro-batches.
TEST(StepPlan, FractionsOfEpochsAreRoundedUpToUpdates) {
  EXPECT_EQ(steps(3, 11, 2), 18);
  EXPECT_EQ(steps(1.5, 11, 2), 9);
  EXPECT_EQ(steps(0.3, 11, 2), 2);
  EXPECT_EQ(steps(2.1, 11, 2), 13);
  EXPECT_EQ(steps(0.01, 11, 2), 1);
  EXPECT_EQ(steps(0.5, 7, 1), 4);
}

TEST(StepPlan, TheLastEpochMayBeCutShort) {
  TrainingSection t;
  t.num_train_epochs = 1.5;
  t.gradient_accumulation_steps = 2;
  const StepPlan plan = make_step_plan(t, 11);
  EXPECT_EQ(plan.epoch_of(5), 0);
  EXPECT_EQ(plan.epoch_of(6), 1);
  EXPECT_EQ(plan.end_batch(5) - plan.first_batch(5), 1) << "11 is odd";
  EXPECT_DOUBLE_EQ(plan.epochs_after(6), 1);
  EXPECT_DOUBLE_EQ(plan.epochs_after(plan.max_steps), 1 + 6.0 / 11);
}

TEST(StepPlan, MoreUpdatesThanMaxStepsMayBeAreRefused) {
  EXPECT_EQ(steps(1e14, 10, 1), 1'000'000'000'000'000);
  for (const double epochs : {1.1e14, 1e30, 1e300})
    EXPECT_NE(test::error_of(ErrorKind::usage, [&] { steps(epochs, 10, 1); }).find("num_train_epochs"),
              std::string::npos);
}

TEST(StepPlan, WithoutABatchTheMessageSaysWhatLeftNone) {
  TrainingSection t;
  t.per_device_train_batch_size = 1;
  int ranks = 1;
  const auto text = [&] { return testing::error_of([&] { make_step_plan(t, 0, ranks); }).text(); };
  EXPECT_EQ(text().cause, "the training data has no rows");
  t.dataloader_drop_last = true;
  EXPECT_EQ(text().cause,
            "the training data does not fill a batch of 1 row, and dataloader_drop_last drops smaller ones");
  EXPECT_NE(text().remedy.find("dataloader_drop_last to false"), std::string::npos);
  ranks = 8;
  EXPECT_EQ(text().cause,
            "the training data does not fill a batch of 1 row on each of 8 ranks, and dataloader_drop_last drops "
            "smaller ones");
}

}  // namespace
}  // namespace qtrain
