// The dropout masks of adapters in whole runs differ between steps and between the micro-batches of a step.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

class DropoutMasks : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(folder_ / "model");
    give_random_weights(folder_ / "model");
  }

  /// Gradient norms of some steps on the same row with constant weights: they differ only because of the masks.
  std::vector<double> norms(int rows, int accumulation, double dropout) const {
    const std::vector<Json> same(static_cast<std::size_t>(rows), Json{{"text", "one row and all that is in it"}});
    write_file(folder_ / "data.jsonl", jsonl(same));
    fs::remove_all(folder_ / "out");
    train_ok(folder_.path(), {{"model_name_or_path", (folder_ / "model").string()},
                              {"dataset_name", (folder_ / "data.jsonl").string()},
                              {"output_dir", (folder_ / "out").string()},
                              {"device", "cpu"},
                              {"bf16", false},
                              {"use_peft", true},
                              {"lora_r", 4},
                              {"lora_dropout", dropout},
                              {"lora_target_modules", "all-linear"},
                              {"max_length", 32},
                              {"max_steps", 3},
                              {"per_device_train_batch_size", 1},
                              {"gradient_accumulation_steps", accumulation},
                              {"learning_rate", 0},
                              {"logging_steps", 1},
                              {"save_strategy", "no"}});
    return column(history(folder_ / "out", "grad_norm"), "grad_norm");
  }

  TempFolder folder_;
};

constexpr double kFar = 1e-3;  // of a norm: with equal masks, only the last digits differ

TEST_F(DropoutMasks, DifferBetweenSteps) {
  const std::vector<double> all = norms(1, 1, 0.5), without = norms(1, 1, 0);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_GT(std::abs(all[1] / all[0] - 1), kFar) << "each step is the first micro-batch of an epoch";
  EXPECT_GT(std::abs(all[2] / all[0] - 1), kFar);
  EXPECT_GT(std::abs(all[2] / all[1] - 1), kFar);
  for (const double norm : without) EXPECT_NEAR(norm / without[0], 1, 1e-6) << "without dropout, all steps are equal";
}

TEST_F(DropoutMasks, DifferBetweenMicroBatches) {
  const double one = norms(1, 1, 0.5).at(0), two = norms(2, 2, 0.5).at(0);
  EXPECT_GT(std::abs(two / one - 1), kFar) << "the second mask equals the first";
  EXPECT_NEAR(norms(2, 2, 0).at(0) / norms(1, 1, 0).at(0), 1, 1e-6)
      << "the mean of equal gradients equals each of them";
}

}  // namespace
}  // namespace qtrain::e2e
