// Memory of a run on a CUDA device or under the harness: it equals the plan, and offloading data to the host changes no
// result.
#include <cstdlib>

#include "core/device.h"
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {
namespace {

TEST(CudaEstimate, IsWhatARunUses) {
  expect_estimates_to_hold("cuda");
}

// `qtrain tune` also tries offloading, and allocates what it planned.
TEST_F(CudaRun, TuneTakesWhatItPlanned) {
  const Json c = config({{"max_length", 12}, {"per_device_train_batch_size", 1}, {"gradient_accumulation_steps", 1}});
  write_file(folder_ / "run.json", dump_json(c));
  const Outcome outcome = qtrain_ok({.words = {"tune", (folder_ / "run.json").string(), "weight_offload=true",
                                               "--steps", "1", "--trials", "3", "--json"}});
  const Json trials = parse_json(outcome.out, "tune").at("trials");
  int tried = 0;
  for (const Json& t : trials) {
    EXPECT_THAT(t.at("on_host"), ::testing::AnyOf(Json(), Json("activation_offloading")));
    if (t.at("number") == 0) continue;
    ++tried;
    EXPECT_EQ(t.at("measured"), t.at("planned")) << t;
  }
  EXPECT_EQ(tried, 3);
}

class CudaOffload : public CudaRun {
 protected:
  /// A model with 5 blocks, so that the inputs of three of them are copied.
  void SetUp() override {
    CudaRun::SetUp();
    Json model = read_json(folder_ / "model/config.json");
    model["num_hidden_layers"] = 5;
    write_file(folder_ / "model/config.json", dump_json(model));
  }
  void TearDown() override { unsetenv("QTRAIN_EMULATION"); }

  Json run(const Json& changes) const {
    Json c = config({{"max_length", 12}, {"per_device_train_batch_size", 1}, {"gradient_checkpointing", true}});
    c.update(changes);
    return c;
  }
};

// Each wait between the two streams is needed in one of these cases: without it, the run fails or its bits change.
TEST_F(CudaOffload, ChangesNoBits) {
  const std::string kept = trained(run(Json::object()));
  EXPECT_TRUE(kept == trained(run({{"gradient_checkpointing", "blocks:2"}}))) << "blocks:2, nothing on the host";
  struct Way {
    const char* streams;
    bool graphs;
    Json policy;
  };
  for (const Way& way : {Way{"streams=late", true, "blocks:2"},
                         {"streams=late", true, true},
                         {"streams=early", true, true},
                         {"streams=random,seed=3", false, true}}) {
    setenv("QTRAIN_EMULATION", way.streams, 1);
    EXPECT_TRUE(kept == trained(run({{"activation_offloading", true},
                                     {"optimizer_offload", true},
                                     {"use_cuda_graphs", way.graphs},
                                     {"gradient_checkpointing", way.policy}})))
        << way.streams << ", " << way.policy;
  }
  const Json memory = read_json(folder_ / "out/train_results.json").at("memory");
  EXPECT_GT(memory.at("pinned").at("optimizer"), 0);
  EXPECT_GT(memory.at("pinned").at("activations"), 0);
  EXPECT_EQ(memory.at("planned").at("total"), memory.at("allocated"));
}

// Weights, whether trained or quantized, are copied block by block. The squares of the norm, and the contributions to a
// tied embedding from several micro-batches, are added in a different order.
TEST_F(CudaOffload, OfWeightsChangesNoBits) {
  Json config = lora({{"max_grad_norm", 0}, {"load_in_4bit", true}, {"use_dora", true}});
  const std::string kept = trained(config);
  const Json before = read_json(folder_ / "out/train_results.json").at("memory");
  config["weight_offload"] = true;
  setenv("QTRAIN_EMULATION", "streams=random,seed=3", 1);
  EXPECT_TRUE(kept == trained(config));
  const Json memory = read_json(folder_ / "out/train_results.json").at("memory");
  EXPECT_GE(memory.at("pinned").at("weights"), before.at("planned").at("weights"));
  EXPECT_EQ(memory.at("planned").at("weights"), 0);
  EXPECT_EQ(memory.at("planned").at("total"), memory.at("allocated"));
}

TEST_F(CudaOffload, GoesOnBitForBit) {
  setenv("QTRAIN_EMULATION", "streams=late", 1);
  for (const char* key : {"optimizer_offload", "weight_offload"}) {
    const Json all = run({{"save_strategy", "steps"},
                          {"save_steps", 1},
                          {key, true},
                          {"max_grad_norm", 0},
                          {"gradient_accumulation_steps", 1}});
    const std::string whole = trained(all);
    fs::remove_all(folder_ / "out/checkpoint-2");
    fs::remove(folder_ / "out/model.safetensors");
    train_ok(folder_.path(), all);
    EXPECT_TRUE(whole == bytes_of(folder_ / "out/model.safetensors")) << key;
    Json on_device = all;
    on_device[key] = false;
    EXPECT_TRUE(whole == trained(on_device)) << key;
  }
}

// The state of a paged optimizer moves to the host if the device has no room for it, and only then.
TEST_F(CudaOffload, PagesOnlyWhereItMust) {
  if (!cuda_info().emulated) GTEST_SKIP() << "needs a device of few bytes";
  const Json paged = run({{"optim", "paged_adamw_8bit"}, {"save_strategy", "steps"}, {"save_steps", 1}});
  const std::string whole = trained(paged);
  const auto memory = [&] { return read_json(folder_ / "out/train_results.json").at("memory"); };
  EXPECT_EQ(memory().at("pinned").at("optimizer"), 0);
  EXPECT_GT(memory().at("planned").at("optimizer"), 0);
  const auto needed = memory().at("allocated").get<std::size_t>();

  fs::remove_all(folder_ / "out/checkpoint-2");
  setenv("QTRAIN_EMULATION", ("memory=" + std::to_string(needed - 1)).c_str(), 1);
  train_ok(folder_.path(), paged);
  EXPECT_GT(memory().at("pinned").at("optimizer"), 0);
  EXPECT_LT(memory().at("allocated"), needed);
  EXPECT_EQ(memory().at("planned").at("total"), memory().at("allocated"));
  EXPECT_TRUE(whole == bytes_of(folder_ / "out/model.safetensors"));
  Json resident = paged;
  resident["optim"] = "adamw_8bit";
  fs::remove_all(folder_ / "out");
  write_file(folder_ / "run.json", dump_json(resident));
  EXPECT_EQ(qtrain({.words = {(folder_ / "run.json").string()}}).code, 4);
}

TEST_F(CudaOffload, NeedsAPolicyThatKeepsInputsOnly) {
  write_file(folder_ / "run.json",
             dump_json(run({{"activation_offloading", true}, {"gradient_checkpointing", false}})));
  const Outcome outcome = qtrain({.words = {(folder_ / "run.json").string()}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("activation_offloading"));
}

}  // namespace
}  // namespace qtrain::e2e
