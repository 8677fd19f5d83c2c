// Training from a config.json without weights: text rows, wrapped packing, random weights.
#include <cmath>
#include <numeric>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class Pretrain : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(folder_ / "model");
    std::vector<Json> rows;
    for (int i = 0; i < 40; ++i)
      rows.push_back({{"text", "row " + std::to_string(i) + " says that the quick brown fox jumps over the lazy dog"}});
    write_file(folder_ / "text.jsonl", jsonl(rows));
  }
  Json config(const std::string& output) const {
    return {{"model_name_or_path", (folder_ / "model").string()},
            {"dataset_name", (folder_ / "text.jsonl").string()},
            {"output_dir", (folder_ / output).string()},
            {"packing", true},
            {"packing_strategy", "wrapped"},
            {"max_length", 64},
            {"max_steps", 30},
            {"per_device_train_batch_size", 4},
            {"learning_rate", 0.01},
            {"warmup_steps", 3},
            {"threads", 1},
            {"bf16", false},
            {"logging_steps", 1},
            {"seed", 3},
            {"save_strategy", "no"}};
  }
  TempFolder folder_;
};

TEST_F(Pretrain, RandomWeightsLearnAndAreTheSameTwice) {
  const Outcome outcome = train_ok(folder_.path(), config("one"));
  EXPECT_THAT(outcome.err, HasSubstr("random weights"));
  const auto losses = column(history(folder_ / "one", "loss"), "loss");
  EXPECT_NEAR(losses.front(), std::log(400.0), 0.1);  // untrained: uniform over the vocabulary
  EXPECT_LT(losses.back(), 0.4 * losses.front());
  train_ok(folder_.path(), config("two"));
  EXPECT_EQ(bytes_of(folder_ / "one/model.safetensors"), bytes_of(folder_ / "two/model.safetensors"));
  Json other = config("three");
  other["seed"] = 4;
  train_ok(folder_.path(), other);
  EXPECT_NE(bytes_of(folder_ / "one/model.safetensors"), bytes_of(folder_ / "three/model.safetensors"));
}

TEST_F(Pretrain, LeavesAFolderThatAnswers) {
  train_ok(folder_.path(), config("out"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_EQ(bytes_of(folder_ / "out" / name), bytes_of(kChatml / name));
  const Outcome outcome = qtrain_ok({.words = {"generate", "--model", (folder_ / "out").string(), "--raw", "--prompt",
                                               "row 7 says that the quick", "--max_new_tokens", "12", "--greedy"}});
  EXPECT_THAT(outcome.out, HasSubstr("brown fox"));
}

TEST_F(Pretrain, StartsAtRandomOverWeightsWhereAsked) {
  train_ok(folder_.path(), config("out"));
  Json again = config("again");
  again.update({{"model_name_or_path", (folder_ / "out").string()}, {"random_init", true}});
  train_ok(folder_.path(), again);
  EXPECT_EQ(bytes_of(folder_ / "out/model.safetensors"), bytes_of(folder_ / "again/model.safetensors"));
}

TEST_F(Pretrain, StartsFromTheDistributionOfTheConfig) {
  Json still = config("out");
  still.update({{"learning_rate", 0.0}, {"max_steps", 1}});
  train_ok(folder_.path(), still);
  for (const auto& [name, values] : tensors_of(folder_ / "out")) {
    const double n = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double variance = 0;
    for (const double v : values) variance += (v - mean) * (v - mean) / n;
    if (name.find("norm") != std::string::npos) {
      EXPECT_EQ(mean, 1) << name;
    } else {  // initializer_range 0.02; within five standard errors
      EXPECT_NEAR(mean, 0, 5 * 0.02 / std::sqrt(n)) << name;
      EXPECT_NEAR(std::sqrt(variance), 0.02, 5 * 0.02 / std::sqrt(2 * n)) << name;
    }
  }
}

}  // namespace
}  // namespace qtrain::e2e
