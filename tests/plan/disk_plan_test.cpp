// What a run writes to disk, and whether the free space is enough.
#include "plan/disk_plan.h"

#include <gmock/gmock.h>

#include "plan/machine.h"
#include "tests/core/temp_folder.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

constexpr const char* kTinyModel = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 400,
  "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu"})";
constexpr StepPlan kTenSteps{.batches = 4, .accumulation = 1, .updates_per_epoch = 4, .max_steps = 10};

TEST(DiskPlan, ACheckpointHoldsWeightsStateAndMasters) {
  ModelSetup setup{
      .model = std::make_unique<Transformer>(
          Device{}, TransformerOptions{.config = parse_model_config(parse_json(kTinyModel, "config"), "")}),
      .saved_dtype = DType::f32};
  const double weights = 4.0 * static_cast<double>(setup.model->params().elements());
  TrainingSection t;
  t.optim = "adamw_torch";
  DiskPlan plan = plan_disk(t, setup, kTenSteps);
  EXPECT_EQ(plan.result, weights);
  EXPECT_NEAR(plan.checkpoint, 3 * weights, 1000) << "two moments, aligned";
  setup.saved_dtype = DType::bf16;
  plan = plan_disk(t, setup, kTenSteps);
  EXPECT_EQ(plan.result, weights / 2);
  EXPECT_NEAR(plan.checkpoint, weights / 2 + 3 * weights, 1000);
  t.save_only_model = true;
  EXPECT_EQ(plan_disk(t, setup, kTenSteps).checkpoint, weights / 2);
}

TEST(DiskPlan, CountsTheCheckpointsThatAreThereAtOnce) {
  TrainingSection t;
  const auto most = [&](SaveStrategy save) {
    t.save_strategy = save;
    return max_checkpoints(t, kTenSteps);
  };
  t.save_steps = 3;
  EXPECT_EQ(most(SaveStrategy::no), 0);
  EXPECT_EQ(most(SaveStrategy::steps), 4) << "3, 6, 9 and the last, 10";
  EXPECT_EQ(most(SaveStrategy::epoch), 3);
  t.eval_strategy = EvalStrategy::steps;
  t.eval_steps = 5;
  EXPECT_EQ(most(SaveStrategy::best), 2);
  t.save_total_limit = 1;
  EXPECT_EQ(most(SaveStrategy::steps), 2) << "one is kept while the next is written";
  t.save_steps = 10;
  EXPECT_EQ(most(SaveStrategy::steps), 1);
}

TEST(DiskVerdict, RefusesWhatCannotBeSavedAndWarnsOfWhatCannotBeKept) {
  const DiskPlan saving{.result = 100e6, .checkpoint = 300e6, .checkpoints = 2}, alone{.result = 100e6};
  EXPECT_FALSE(judge_disk(saving, 700e6).problem || judge_disk(saving, 700e6).warning);
  const DiskVerdict close = judge_disk(saving, 699e6);
  EXPECT_FALSE(close.problem);
  EXPECT_EQ(close.warning, "the run will write about 700.0 MB (2 checkpoints of 300.0 MB), but only 699.0 MB are free");
  EXPECT_FALSE(judge_disk(saving, 400e6).problem);
  const DiskVerdict full = judge_disk(saving, 399e6);
  ASSERT_TRUE(full.problem);
  EXPECT_EQ(full.problem->cause,
            "the result needs 100.0 MB, plus 300.0 MB for a checkpoint, but only 399.0 MB are free");
  EXPECT_FALSE(judge_disk(alone, 100e6).problem) << "no checkpoint is saved";
  EXPECT_EQ(judge_disk(alone, 0).problem.value().cause, "the result needs 100.0 MB, but only 0.0 MB are free");
  EXPECT_FALSE(judge_disk(saving, std::nullopt).problem || judge_disk(saving, std::nullopt).warning) << "not known";
}

TEST(FreeDisk, IsKnownWhereThereIsADisk) {
  const testing::TempFolder folder;
  EXPECT_GT(free_disk(folder / "not/yet/there").value(), 0);
  EXPECT_FALSE(free_disk("/proc/none"));
}

}  // namespace
}  // namespace qtrain
