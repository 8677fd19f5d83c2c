// Training state that is sharded within groups of GPUs and replicated across groups.
#include <fmt/format.h>

#include <tuple>

#include "core/os/file.h"
#include "tests/e2e/cuda_ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CudaGroups : public HarnessRanks {
 protected:
  struct Division {
    int ranks, stage, group;

    std::string text() const { return fmt::format("{} ranks, stage {}, groups of {}", ranks, stage, group); }
  };
  static constexpr int kMicroBatches = 8;                // of an update
  static constexpr std::size_t kMemoryOfOne = 5 * 4096;  // the stand-in for NCCL takes this much for a communicator

  Json whole() const {
    Json config = all_weights();
    config.update({{"gradient_accumulation_steps", kMicroBatches}, {"save_strategy", "steps"}, {"save_steps", 1}});
    return config;
  }
  Json quantized() const {
    Json config = whole();
    config.update(base());
    config.update({{"gradient_accumulation_steps", kMicroBatches},
                   {"save_strategy", "steps"},
                   {"save_steps", 1},
                   {"load_in_4bit", true},
                   {"use_dora", true}});
    return config;
  }
  static Json grouped(const Json& config, const Division& d) {
    Json shared = divided(config, d.ranks);
    shared.update({{"nproc", d.ranks}, {"zero_stage", d.stage}, {"zero_group_size", d.group}});
    return shared;
  }
  /// The results of a run: weights, states, losses.
  using Results = std::tuple<std::string, std::string, std::vector<double>>;
  Results results(const Json& config) const {
    return {bytes_of(folder_ / "out" / weights_of(config)),
            bytes_of(folder_ / "out/checkpoint-2/optimizer.safetensors"), losses()};
  }
  Outcome run(const Json& config, const std::vector<std::string>& words = {}) const {
    const int ranks = config.at("nproc").get<int>();
    fs::remove_all(folder_ / "out");
    Launch started = launch(config, ranks);
    started.argv.insert(started.argv.end(), words.begin(), words.end());
    Outcome outcome = Process(std::move(started)).wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  /// Checks that each of these divisions gives the bits of one rank.
  void expect_bits_of_one(const Json& config, const std::vector<Division>& divisions) const {
    trained(config);
    const Results alone = results(config);
    for (const Division& d : divisions) {
      run(grouped(config, d));
      EXPECT_EQ(results(config), alone) << d.text();
      expect_planned_memory_and_graphs();
    }
  }
};

// In groups of one rank, each has all of the weights, on the host.
TEST_F(CudaGroups, OfOneRankHaveItsBits) {
  Json config = whole();
  config.update({{"gradient_accumulation_steps", 4}, {"weight_offload", true}});
  expect_bits_of_one(config, {{2, 3, 1}});
}

TEST_F(CudaGroups, OfEveryDivisionHaveTheBitsOfOneRank) {
  expect_bits_of_one(whole(), {{4, 1, 2}, {4, 2, 2}, {4, 3, 2}, {8, 3, 4}, {2, 3, 1}});
  expect_bits_of_one(quantized(), {{4, 2, 2}, {4, 3, 2}});
  Json config = whole();
  config["overlap_comm"] = false;
  expect_bits_of_one(config, {{4, 3, 2}});
  config["weight_offload"] = true;
  expect_bits_of_one(config, {{4, 3, 2}});
}

// All groups use the results of the first one.
TEST_F(CudaGroups, WholeMatricesHaveTheBitsOfOneRank) {
  Json config = whole();
  config["optim"] = "muon";
  expect_bits_of_one(config, {{4, 1, 2}, {4, 3, 2}});
}

// Gradients are clipped by their norm: the norm of only one group would change the curve.
TEST_F(CudaGroups, WithoutAnOrderOnlyTheLastBitsDiffer) {
  Json config = whole();
  config["deterministic_reduce"] = false;
  trained(config);
  const std::vector<double> alone = losses();
  run(grouped(config, {4, 2, 2}));
  expect_losses(alone, 1e-4, "stage 2");  // float32 sums of gradients in a different order
  expect_planned_memory_and_graphs();
}

// Nothing is computed in a different order.
TEST_F(CudaGroups, ExchangesBesideTheComputationChangeNoBit) {
  Json config = whole();
  config["deterministic_reduce"] = false;
  for (const int stage : {1, 2, 3}) {
    const Json beside = grouped(config, {4, stage, 2});
    Json in_turn = beside;
    in_turn["overlap_comm"] = false;
    run(beside);
    const Results wanted = results(beside);
    run(in_turn);
    EXPECT_EQ(results(in_turn), wanted) << "stage " << stage;
    expect_planned_memory_and_graphs();
  }
}

TEST_F(CudaGroups, ARunGoesOnWithAnotherDivision) {
  const Json config = whole();
  const std::string alone = trained(config);
  const std::vector<Json> runs{grouped(config, {4, 3, 2}), grouped(config, {2, 2, 0})};
  for (const auto& [from, to] : {std::pair(0, 1), {1, 0}}) {
    run(runs.at(static_cast<std::size_t>(from)));
    fs::rename(folder_ / "out", folder_ / "before");
    const Outcome outcome =
        run(runs.at(static_cast<std::size_t>(to)), {"--resume", (folder_ / "before/checkpoint-1").string()});
    EXPECT_THAT(outcome.err, HasSubstr("resumed from"));
    EXPECT_EQ(bytes_of(folder_ / "out" / weights_of(config)), alone) << from << " to " << to;
    fs::remove_all(folder_ / "before");
  }
}

// One byte less than a run without recomputation needs in addition to NCCL's memory for three communicators, two of
// which belong to groups.
TEST_F(CudaGroups, ArePlannedWithWhatTheirCommunicatorsLeave) {
  Json config = grouped(all_weights(), {4, 3, 2});
  config.update({{"max_steps", 1}, {"gradient_checkpointing", "auto"}, {"use_cuda_graphs", false}});
  EXPECT_THAT(run(config).err, HasSubstr("recomputation: none"));
  const auto needed = read_json(folder_ / "out/train_results.json").at("memory").at("allocated").get<std::size_t>();
  Launch less = launch(config, 4);
  for (std::string& variable : less.environment)
    if (variable.starts_with("QTRAIN_EMULATION=")) variable += fmt::format(",memory={}", needed + kMemoryOfOne + 1);
  const Outcome outcome = Process(std::move(less)).wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("recomputation: none")));
}

}  // namespace
}  // namespace qtrain::e2e
