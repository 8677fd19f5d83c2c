// Runs whose learning rate follows their evaluations (reduce_lr_on_plateau).
#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

class PlateauRun : public VerifiedRun {
 protected:
  /// A run whose loss soon gets worse.
  Json worsening() const {
    Json c = config();
    c.update({{"max_steps", 16},
              {"learning_rate", 0.3},
              {"max_grad_norm", 0},
              {"eval_steps", 1},
              {"save_steps", 4},
              {"warmup_steps", 0},
              {"lr_scheduler_type", "reduce_lr_on_plateau"},
              {"lr_scheduler_kwargs", {{"factor", 0.5}, {"patience", 1}, {"cooldown", 1}, {"threshold", 0.01}}}});
    return c;
  }
  static std::vector<double> rates(const fs::path& run) {
    return column(history(run, "learning_rate"), "learning_rate");
  }
};

/// The rates by the rules of torch, from the logged losses.
std::vector<double> rates_for(const std::vector<double>& losses) {
  std::vector<double> rates;
  double rate = 0.3, best = 1e9;
  int bad = 0, cooldown = 0;
  for (const double loss : losses) {
    rates.push_back(rate);
    bad = loss < best * (1 - 0.01) ? 0 : bad + 1;
    if (bad == 0) best = loss;
    if (cooldown > 0) --cooldown, bad = 0;
    if (bad > 1) rate *= 0.5, cooldown = 1, bad = 0;
  }
  return rates;
}

TEST_F(PlateauRun, LowersItsRateAfterEvaluationsWithoutImprovement) {
  train_ok(folder_.path(), worsening());
  const std::vector<double> losses = column(history(output(), "eval_loss"), "eval_loss");
  ASSERT_EQ(losses.size(), 16u);
  EXPECT_EQ(rates(output()), rates_for(losses));
  EXPECT_LT(rates(output()).back(), 0.1) << "the rate was meant to be lowered more than once";
}

TEST_F(PlateauRun, GoesOnWithItsRateWhereItWasStopped) {
  train_ok(folder_.path(), worsening());
  Json c = worsening();
  c["output_dir"] = at("parts").string();
  write_file(at("run.json"), dump_json(c));
  for (const int step : {3, 6, 9})
    EXPECT_EQ(qtrain({.words = {at("run.json").string(), "--stop_after", std::to_string(step)}}).code, 75);
  qtrain_ok({.words = {at("run.json").string()}});
  EXPECT_EQ(bytes_of(at("parts") / "model.safetensors"), bytes_of(output() / "model.safetensors"));
  EXPECT_EQ(history_without_times(at("parts")), history_without_times(output()));
  EXPECT_EQ(verify().code, 0);
  EXPECT_EQ(verify_of(at("parts")).code, 0);
}

}  // namespace
}  // namespace qtrain::e2e
