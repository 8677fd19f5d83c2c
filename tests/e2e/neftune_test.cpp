// Training with noise on the embeddings (NEFTune): curves of transformers' Trainer with the same noise
// (tests/train/make_recipe_goldens.py), and what the noise depends on.
#include "core/os/file.h"
#include "tests/e2e/noisy_curves.h"

namespace qtrain::e2e {
namespace {

class NoisyCurve : public ::testing::TestWithParam<const char*> {};

TEST_P(NoisyCurve, EveryStepIsAsTransformersLogsIt) {
  expect_noisy_curve(GetParam(), "cpu");
}

INSTANTIATE_TEST_SUITE_P(All, NoisyCurve,
                         ::testing::Values("neftune_llama", "neftune_gemma3", "neftune_granite", "neftune_lora"),
                         [](const auto& info) { return std::string(info.param); });

class NoisyRun : public ::testing::Test {
 protected:
  Json config(const Json& changes = Json::object()) const {
    Json c = tiny_run(folder_ / "out");
    c.update({{"neftune_noise_alpha", 10},
              {"device", "cpu"},
              {"max_steps", 8},
              {"gradient_accumulation_steps", 4},
              {"per_device_train_batch_size", 1},
              {"deterministic_reduce", true},
              {"train_sampling_strategy", "random"}});
    c.update(changes);
    return c;
  }
  /// The weights of a run in a new folder.
  std::string trained(const Json& c) const {
    fs::remove_all(folder_ / "out");
    train_ok(folder_.path(), c);
    return bytes_of(folder_ / "out/model.safetensors");
  }
  std::vector<double> losses() const { return column(history(folder_ / "out", "loss"), "loss"); }

  TempFolder folder_;
};

// Without changes of weights, the same rows have another loss in each epoch only because of the noise.
TEST_F(NoisyRun, HasOtherNoiseInEachEpoch) {
  const auto spread_of_epochs = [&](const Json& alpha) {
    trained(config({{"neftune_noise_alpha", alpha},
                    {"learning_rate", 0},
                    {"train_sampling_strategy", "sequential"},
                    {"gradient_accumulation_steps", 21},
                    {"max_steps", 3}}));
    const std::vector<double> all = losses();
    return std::abs(all.at(1) - all.at(0)) + std::abs(all.at(2) - all.at(1)) + std::abs(all.at(2) - all.at(0));
  };
  EXPECT_GT(spread_of_epochs(10), 1e-3);
  EXPECT_LT(spread_of_epochs(nullptr), 1e-6);
}

TEST_F(NoisyRun, DoesNotDependOnRanksOrRecomputation) {
  const std::string whole = trained(config());
  EXPECT_EQ(trained(config({{"nproc", 2}, {"gradient_accumulation_steps", 2}})), whole);
  EXPECT_EQ(trained(config({{"gradient_checkpointing", true}})), whole);
  EXPECT_EQ(trained(config({{"gradient_checkpointing", "blocks:2"}})), whole);
  EXPECT_NE(trained(config({{"neftune_noise_alpha", nullptr}})), whole);
  EXPECT_NE(trained(config({{"seed", 43}, {"data_seed", 42}})), whole);
}

// Rows of other lengths in the same micro-batch do not change the noise of a row; sums have other last bits.
TEST_F(NoisyRun, DoesNotDependOnTheMicroBatch) {
  trained(config({{"max_steps", 2}}));
  const std::vector<double> apart = losses();
  trained(config({{"max_steps", 2}, {"per_device_train_batch_size", 4}, {"gradient_accumulation_steps", 1}}));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(losses().at(i), apart.at(i), 2e-6) << i;
}

TEST_F(NoisyRun, GoesOnWithItsNoiseWhereItWasStopped) {
  const std::string whole = trained(config({{"save_strategy", "steps"}, {"save_steps", 100}}));
  fs::remove_all(folder_ / "out");
  EXPECT_EQ(qtrain({.words = {(folder_ / "config.json").string(), "--stop_after", "5"}}).code, 75);
  qtrain_ok({.words = {(folder_ / "config.json").string()}});
  EXPECT_EQ(bytes_of(folder_ / "out/model.safetensors"), whole);
}

// The evaluation of a run equals that of its result, which has no noise.
TEST_F(NoisyRun, HasNoNoiseInEvaluations) {
  const Json evaluated{{"eval_dataset_name", (kGoldens / "curves/cosine/data.jsonl").string()},
                       {"eval_strategy", "steps"},
                       {"eval_steps", 8}};
  trained(config(evaluated));
  const double within = history(folder_ / "out", "eval_loss").back().at("eval_loss");
  const std::string said = qtrain_ok({.words = {"eval", (folder_ / "config.json").string(), "--json"}}).out;
  EXPECT_EQ(parse_json(said, "eval").at("eval_loss"), within);
}

}  // namespace
}  // namespace qtrain::e2e
