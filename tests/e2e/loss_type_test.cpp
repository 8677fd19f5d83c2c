// The losses that a run can minimize, on rows with a single target, whose probability follows from its loss.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

class LossType : public ::testing::Test {
 protected:
  /// The loss of the first step and that of an evaluation before it, of one row.
  struct Losses {
    double train, eval;
  };
  Losses losses_with(const Json& change = Json::object()) {
    write_file(folder_ / "rows.jsonl", R"({"input_ids": [5, 9, 3, 7], "labels": [-100, -100, -100, 7]})"
                                       "\n");
    const fs::path output = folder_ / ("output_" + std::to_string(runs_++));
    Json config = tiny_run(output);
    config.update({{"dataset_name", (folder_ / "rows.jsonl").string()},
                   {"eval_dataset_name", (folder_ / "rows.jsonl").string()},
                   {"per_device_train_batch_size", 1},
                   {"gradient_accumulation_steps", 1},
                   {"eval_on_start", true},
                   {"logging_steps", 1},
                   {"max_steps", 1}});
    config.update(change);
    train_ok(folder_.path(), config);
    return {.train = history(output, "loss").at(0).at("loss"),
            .eval = history(output, "eval_loss").at(0).at("eval_loss")};
  }

 private:
  TempFolder folder_;
  int runs_ = 0;
};

TEST_F(LossType, DftWeightsATargetByItsProbability) {
  const auto [train, eval] = losses_with();
  EXPECT_NEAR(train, eval, 1e-5);
  for (const auto& change : {Json{{"loss_type", "dft"}}, Json{{"loss_type", "dft"}, {"label_smoothing_factor", 0.5}}}) {
    const Losses dft = losses_with(change);
    EXPECT_NEAR(dft.train, train * std::exp(-train), 1e-6);
    EXPECT_NEAR(dft.eval, eval * std::exp(-eval), 1e-6);
  }
  EXPECT_EQ(losses_with({{"loss_type", "chunked_nll"}}).train, train);
}

// The loss is linear in the share that goes to all tokens, and with a share of almost 1 the mean of their losses.
TEST_F(LossType, SmoothedLabelsAddTheMeanLossOfAllTokens) {
  const double plain = losses_with().train;
  const auto [some, of_evaluation] = losses_with({{"label_smoothing_factor", 0.125}});
  const double half = losses_with({{"label_smoothing_factor", 0.5}}).train;
  EXPECT_NEAR(some, of_evaluation, 1e-5);
  EXPECT_GT(std::abs(half - plain), 0.01);
  EXPECT_NEAR(half - plain, 4 * (some - plain), 1e-5);
}

}  // namespace
}  // namespace qtrain::e2e
