// The steps of a run on a CUDA device or under the harness: recorded work, and float16 with a scaled loss.
#include "core/device.h"
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A run of this many steps with one short row each.
Json short_run(int steps, Json more = Json::object()) {
  more.update({{"max_steps", steps}, {"max_length", 24}, {"per_device_train_batch_size", 1}});
  return more;
}

TEST_F(CudaRun, GraphsChangeNoBits) {
  for (const bool adapter : {false, true}) {
    Json c = adapter ? lora(short_run(5)) : config(short_run(5));
    const std::string recorded = trained(c);
    // All of 10 micro-batches and 5 updates are replayed, except for the first of each size.
    EXPECT_GE(read_json(folder_ / "out/train_results.json").at("cuda_graphs").at("replays"), 4 + 5);
    c["use_cuda_graphs"] = false;
    EXPECT_TRUE(recorded == trained(c)) << "adapter " << adapter;
    EXPECT_FALSE(read_json(folder_ / "out/train_results.json").contains("cuda_graphs"));
  }
}

// Their tables depend on the longest document of a batch, whatever the batch size.
TEST_F(CudaRun, GraphsChangeNoBitsOfDynamicPositions) {
  Json model = read_json(folder_ / "model/config.json");
  model["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  model["max_position_embeddings"] = 8;
  write_file(folder_ / "model/config.json", dump_json(model));
  Json c = config(short_run(5));
  const std::string recorded = trained(c);
  c["use_cuda_graphs"] = false;
  EXPECT_TRUE(recorded == trained(c));
}

TEST_F(CudaRun, InFloat16ScalesTheLoss) {
  trained(config(short_run(3)));
  const std::vector<double> wide = losses();
  trained(config(short_run(3, {{"fp16", true}})));
  EXPECT_NE(losses(), wide) << "fp16 has no effect";
  EXPECT_THAT(column(metrics("loss_scale"), "loss_scale"), Each(65536.0));
}

/// A float16 run whose first checkpoint has another loss scale.
class Float16Run : public CudaRun {
 protected:
  Json config16(int steps) const {
    return config(short_run(steps, {{"fp16", true}, {"save_strategy", "steps"}, {"save_steps", 1}}));
  }
  void start_with(double scale, std::int64_t clean_steps) const {
    trained(config16(1));
    const fs::path checkpoint = folder_ / "out/checkpoint-1";
    Json state = read_json(checkpoint / "training_state.json");
    state["loss_scale"] = scale;
    state["loss_scale_clean_steps"] = clean_steps;
    write_file(checkpoint / "training_state.json", dump_json(state));
    reseal(checkpoint, "training_state.json");
  }
  void go_on(int steps) const { train_ok(folder_.path(), config16(steps)); }
  std::string weights(int step) const {
    return bytes_of(folder_ / ("out/checkpoint-" + std::to_string(step)) / "model.safetensors");
  }
};

TEST_F(Float16Run, OverflowHalvesTheScaleAndSkipsTheUpdate) {
  start_with(0x1p40, 5);
  go_on(3);
  EXPECT_EQ(weights(1), weights(2));
  EXPECT_EQ(weights(1), weights(3));
  const auto rows = history(folder_ / "out", "learning_rate");
  // The schedule's learning rate does not advance either.
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].at("learning_rate"), rows[2].at("learning_rate"));
  const Json state = read_json(folder_ / "out/checkpoint-3/training_state.json");
  EXPECT_EQ(state.at("loss_scale"), 0x1p38);
  EXPECT_EQ(state.at("overflows"), 2);
  EXPECT_EQ(state.at("updates"), 1);
  EXPECT_EQ(state.at("nonfinite_in_row"), 0);
}

TEST_F(Float16Run, GoesOnBitForBitWhereTheScaleChanges) {
  start_with(65536, 1998);
  go_on(4);
  EXPECT_THAT(column(metrics("loss_scale"), "loss_scale"), ElementsAre(65536, 65536, 131072, 131072));
  const std::string whole = weights(4);
  for (const int step : {3, 4}) fs::remove_all(folder_ / ("out/checkpoint-" + std::to_string(step)));
  go_on(4);
  EXPECT_EQ(whole, weights(4));
}

TEST_F(CudaRun, OldGpusAreToldWhatTheyCanDoInsteadOfBfloat16) {
  if (!cuda_info().emulated) GTEST_SKIP() << "needs a device that claims to be old";
  ASSERT_EQ(setenv("QTRAIN_EMULATION", "capability=75", 1), 0);
  write_file(folder_ / "run.json", dump_json(config({{"bf16", true}})));
  const Outcome outcome = qtrain({.words = {(folder_ / "run.json").string()}});
  unsetenv("QTRAIN_EMULATION");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("bfloat16 needs a GPU of compute capability 8.0 or higher"));
  EXPECT_THAT(outcome.err, HasSubstr("fp16=true"));
}

// Attention runs without the tensor cores of later GPUs, and nothing else uses features that old GPUs lack.
TEST_F(CudaRun, TrainsInFloat16OnOldGpus) {
  if (!cuda_info().emulated) GTEST_SKIP() << "needs a device that claims to be old";
  Json model = read_json(folder_ / "model/config.json");
  model["head_dim"] = 64;
  write_file(folder_ / "model/config.json", dump_json(model));
  trained(config(short_run(1, {{"fp16", true}})));
  const double loss = losses().at(0);
  ASSERT_EQ(setenv("QTRAIN_EMULATION", "capability=75", 1), 0);
  trained(config(short_run(1, {{"fp16", true}})));
  unsetenv("QTRAIN_EMULATION");
  EXPECT_NEAR(losses().at(0), loss, 1e-3);  // twice the difference of transformers in float16 from float64
}

}  // namespace
}  // namespace qtrain::e2e
