// Several ranks with one GPU each give the same result as one, and no run hangs if a rank is lost. On a machine with
// one GPU the ranks share it, which NCCL allows if they claim to be on different machines.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>

#include "core/os/file.h"
#include "tests/e2e/cuda_ranks.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Range;

class CudaRanksOfStage : public CudaRanks, public ::testing::WithParamInterface<int> {};

// Sums of two gradients do not depend on the order; their norms may differ in the last bits.
TEST_F(CudaRanks, DividedStatesGiveTheSameRun) {
  Json config = base();
  config.update({{"deterministic_reduce", false}, {"load_in_4bit", true}, {"use_dora", true}, {"lora_dropout", 0.1}});
  trained(config);
  const std::vector<double> alone = losses();
  config["zero_stage"] = 1;
  trained_by_two(config);
  expect_losses(alone, 1e-5, "stage 1");
  expect_planned_memory_and_graphs();
}

// Nothing is computed in a different order: a separate stream only changes when exchanges take place.
TEST_P(CudaRanksOfStage, ExchangesBesideTheComputationChangeNoBit) {
  Json config = all_weights();
  config.update({{"deterministic_reduce", false}, {"zero_stage", GetParam()}, {"overlap_comm", true}});
  const std::string beside = trained_by_two(config);
  expect_planned_memory_and_graphs();
  config["overlap_comm"] = false;
  EXPECT_EQ(trained_by_two(config), beside);
  expect_planned_memory_and_graphs();
}
INSTANTIATE_TEST_SUITE_P(All, CudaRanksOfStage, Range(0, 4));

// Gradients are rounded to 8 bits when sent, as in Zero.RoundedGradientsGiveANearCurve, and then added by NCCL: the
// error is up to 2^-8 of the loss decrease per update, which is a few hundredths.
TEST_F(CudaRanks, RoundedGradientsGiveANearRun) {
  Json config = all_weights();
  config.update({{"deterministic_reduce", false},
                 {"optim", "sgd"},
                 {"learning_rate", 0.1},
                 {"max_grad_norm", 0},
                 {"max_steps", 2}});
  trained(config);
  const std::vector<double> exact = losses();
  config["communication_data_type"] = "bf16";
  for (const int stage : {0, 2}) {
    config["zero_stage"] = stage;
    trained_by_two(config);
    const std::vector<double> rounded = losses();
    ASSERT_EQ(rounded.size(), 2U);
    EXPECT_NEAR(rounded[0], exact[0], 1e-5) << "stage " << stage;
    EXPECT_NEAR(rounded[1], exact[1], 2e-4) << "stage " << stage;
    EXPECT_GT(std::abs(rounded[1] - exact[1]), 1e-7) << "stage " << stage;
    expect_planned_memory_and_graphs();
  }
}

TEST_F(CudaRanks, TwoGiveTheBitsOfOne) {
  const std::string alone = trained(base());
  const std::vector<double> losses_alone = losses();
  EXPECT_EQ(trained_by_two(base()), alone);
  EXPECT_EQ(losses(), losses_alone);
}

TEST_F(CudaRanks, WithoutThatOnlyTheLastBitsDiffer) {
  Json config = base();
  config["deterministic_reduce"] = false;
  trained(config);
  const std::vector<double> alone = losses();
  trained_by_two(config);
  const std::vector<double> shared = losses();
  ASSERT_EQ(alone.size(), 2u);
  ASSERT_EQ(shared.size(), alone.size());
  // float32 sums of gradients in a different order, over two updates with a learning rate of 0.002.
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-4) << "step " << i + 1;
}

/// Ranks that share the tokens of each micro-batch have the loss of one rank, up to the order of float32 sums.
class CudaContext : public CudaRanks {
 protected:
  void expect_as_alone(Json config, const std::vector<int>& stages, double tolerance) const {
    trained(config);
    const std::vector<double> alone = losses();
    config["context_parallel_size"] = 2;
    for (const int stage : stages) {
      config["zero_stage"] = stage;
      trained_by_ranks(config);
      expect_losses(alone, tolerance, "stage " + std::to_string(stage));
      const Json memory = read_json(folder_ / "out/train_results.json").at("memory");
      EXPECT_EQ(memory.at("planned").at("total"), memory.at("allocated"));
      EXPECT_GT(memory.at("planned").at("gathered_keys"), 0);
    }
  }
  Json adapted(const Json& changes) const {
    Json c = lora(changes);
    c["lora_dropout"] = 0;
    return c;
  }
};

TEST_F(CudaContext, QuantizedAndDividedModelsAreThoseOfOneRank) {
  expect_as_alone(adapted({{"load_in_4bit", true}, {"gradient_checkpointing", true}}), {0, 3}, 1e-5);
}

// The tiles of tensor cores begin at other tokens.
TEST_F(CudaContext, BfloatsAreNearThoseOfOneRank) {
  expect_as_alone(adapted({{"bf16", true}, {"packing", false}, {"max_length", nullptr}}), {0}, 2e-3);
}

TEST_F(CudaContext, WindowsAndSinksAreThoseOfOneRank) {
  std::vector<Json> rows;
  for (int i = 0; i < 4; ++i) {
    Json ids = Json::array();
    for (int k = 0; k < 9 + 13 * i; ++k) ids.push_back(4 + (k * 7 + i * 5) % 50);
    rows.push_back({{"input_ids", ids}});
  }
  write_file(folder_ / "ids.jsonl", jsonl(rows));
  for (const char* model : {"gpt_oss", "gemma2"})
    expect_as_alone(config({{"model_name_or_path", (kGoldens / model).string()},
                            {"dataset_name", (folder_ / "ids.jsonl").string()},
                            {"random_init", false},
                            {"router_aux_loss_coef", 0},
                            {"packing", false},
                            {"optim", "sgd"},
                            {"learning_rate", 0.05}}),
                    {0}, 1e-5);
}

TEST_F(CudaRanks, MoreThanThereAreGpusAreRefused) {
  Json config = base();
  config["nproc"] = 64;
  const Outcome outcome = Process(launch(config, 3)).wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("nproc is 64"), HasSubstr("ranks do not share GPUs")));
}

// GPUs may choose different GEMM algorithms for an update, so each matrix is updated by one rank.
TEST_F(CudaRanks, UpdatesWithGemmsAreDivided) {
  Json base = config({{"optim", "muon"}, {"gradient_accumulation_steps", 2}});
  trained(base);
  const std::vector<double> alone = losses();
  fs::remove_all(folder_ / "out");
  Process zero(rank(0, divided(base, 2))), one(rank(1, divided(base, 2)));
  const Outcome first = zero.wait(), second = one.wait();
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(first.err, HasSubstr("zero_stage: 1, required by optim muon"));
  ASSERT_EQ(losses().size(), alone.size());
  // float32 sums of gradients in a different order, and an update that makes all singular values alike.
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(losses()[i], alone[i], 1e-3) << "step " << i + 1;
}

TEST_F(HarnessRanks, AreAsManyAsThereAreGpus) {
  Json config = base();
  config.update({{"max_steps", 1}, {"gradient_accumulation_steps", 1}, {"use_cuda_graphs", false}});
  const Outcome outcome = Process(launch(config, 3)).wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("starting 3 ranks on this machine, 3 in total"));
  EXPECT_EQ(read_json(folder_ / "out/resolved_config.json").at("values").at("nproc").at("value"), 3);
}

// Recomputing a block gathers its weights once more.
TEST_F(HarnessRanks, RecomputeAlikeWhereOneHasLessRoom) {
  Json config = divided(base(), 2);
  config.update({{"deterministic_reduce", false}, {"zero_stage", 3}, {"gradient_checkpointing", "auto"}});
  const auto run = [&](const std::string& memory_of_second) {
    fs::remove_all(folder_ / "out");
    Launch less = rank(1, config);
    for (std::string& variable : less.environment)
      if (variable.starts_with("QTRAIN_EMULATION=")) variable += memory_of_second;
    Process zero(rank(0, config)), one(std::move(less));
    const Outcome first = zero.wait(), second = one.wait();
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(second.code, 0) << second.err;
    return first.err;
  };
  EXPECT_THAT(run(""), HasSubstr("recomputation: none"));
  const auto all = read_json(folder_ / "out/train_results.json").at("memory").at("allocated").get<std::size_t>();
  EXPECT_THAT(run(fmt::format(",memory={}", all - 1)), HasSubstr("recomputation: selective"));
}

/// Sums with a fixed order.
class OrderedSums : public HarnessRanks {
 protected:
  struct Division {
    int ranks, stage;
  };
  Json quantized() const {
    Json config = base();
    config.update({{"load_in_4bit", true}, {"use_dora", true}, {"lora_dropout", 0.1}});
    return config;
  }
  /// Checks that each of these divisions gives the bits of one rank: weights, states, losses.
  void expect_bits_of_one(Json config, const std::vector<Division>& divisions) const {
    SCOPED_TRACE(config.value("optim", "adamw") + (config.contains("load_in_4bit") ? ", 4 bits" : ""));
    config.update({{"gradient_accumulation_steps", 6}, {"save_strategy", "steps"}, {"save_steps", 2}});
    const auto state = [&] { return bytes_of(folder_ / "out/checkpoint-2/optimizer.safetensors"); };
    const std::string alone = trained(config), state_alone = state();
    const std::vector<double> losses_alone = losses();
    for (const auto& [ranks, stage] : divisions) {
      Json shared = divided(config, ranks);
      shared.update({{"nproc", ranks}, {"zero_stage", stage}});
      fs::remove_all(folder_ / "out");
      const Outcome outcome = Process(launch(shared, ranks)).wait();
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(bytes_of(folder_ / "out" / weights_of(config)), alone) << ranks << " ranks, stage " << stage;
      EXPECT_EQ(state(), state_alone) << ranks << " ranks, stage " << stage;
      EXPECT_EQ(losses(), losses_alone) << ranks << " ranks, stage " << stage;
      expect_planned_memory_and_graphs();
    }
  }
};

TEST_F(OrderedSums, OfDividedStatesHaveTheBitsOfOne) {
  expect_bits_of_one(all_weights(), {{2, 3}});
}

TEST_F(OrderedSums, OfEveryDivisionHaveTheBitsOfOne) {
  Json whole_matrices = all_weights();
  whole_matrices["optim"] = "muon";
  Json rounded = all_weights();
  rounded["communication_data_type"] = "bf16";
  for (const Json& config : {all_weights(), quantized(), whole_matrices, rounded})
    expect_bits_of_one(config, {{3, 1}, {2, 2}, {3, 3}});
}

// A rank is killed or stopped while the ranks connect with NCCL, which does not notice.
class MissingAtTheStart : public HarnessRanks, public ::testing::WithParamInterface<int> {};

TEST_P(MissingAtTheStart, IsNamed) {
  Json config = divided(base(), 2);
  config.update({{"max_steps", 1}, {"ddp_timeout", GetParam() == SIGSTOP ? 6 : 600}});
  for (const int missing : {0, 1}) {
    Launch without = rank(missing, config);
    without.environment.push_back(fmt::format("QTRAIN_STAND_IN_NCCL_RAISES={}", GetParam()));
    const auto begin = std::chrono::steady_clock::now();
    Process lost(without), other(rank(1 - missing, config));
    const Outcome outcome = other.wait();
    EXPECT_EQ(outcome.code, 7) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("error: rank {}", missing)));
    EXPECT_THAT(outcome.err, HasSubstr("run the same command again"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    lost.signal(SIGKILL);
  }
}
INSTANTIATE_TEST_SUITE_P(All, MissingAtTheStart, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "killed" : "stopped"; });

// One GPU, then several with other divisions, and back: the checkpoints are the same.
TEST_F(HarnessRanks, GoOnFromWhatOthersHaveSaved) {
  Json config = all_weights();
  config.update({{"gradient_accumulation_steps", 6}, {"max_steps", 4}, {"save_strategy", "steps"}, {"save_steps", 2}});
  struct Division {
    int ranks, stage;
  };
  const auto run = [&](const Division& d, const std::string& device, const std::vector<std::string>& more) {
    Json shared = divided(config, d.ranks);
    shared.update({{"nproc", d.ranks}, {"zero_stage", d.stage}, {"device", device}});
    Launch one = launch(shared, d.ranks);
    one.argv.insert(one.argv.end(), more.begin(), more.end());
    const Outcome outcome = Process(one).wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  const auto saved_by = [&](const Division& d, const std::string& device) {
    fs::remove_all(folder_ / "out");
    run(d, device, {});
    fs::remove_all(folder_ / "saved");
    fs::rename(folder_ / "out", folder_ / "saved");
  };
  const auto go_on = [&](const Division& d) {
    EXPECT_THAT(run(d, "cuda", {"--resume", (folder_ / "saved/checkpoint-2").string()}), HasSubstr("resumed from"));
    return bytes_of(folder_ / "out/model.safetensors");
  };
  saved_by({1, 0}, "cuda");
  const std::string alone = bytes_of(folder_ / "saved/model.safetensors");
  EXPECT_EQ(go_on({2, 3}), alone);
  saved_by({2, 3}, "cuda");
  EXPECT_EQ(go_on({3, 1}), alone);
  EXPECT_EQ(go_on({1, 0}), alone);
  saved_by({2, 1}, "cpu");  // the CPU has other GEMMs and sums, so other last bits
  go_on({2, 2});
  EXPECT_LT(largest_difference(folder_ / "out", folder_ / "saved"), 1e-4);
}

// Exchanges that overlap a pass do not depend on the number of ranks per machine, even while activations are offloaded.
TEST_F(HarnessRanks, OneOnEachMachineIsOneOfAll) {
  Json config = divided(all_weights(), 2);
  config.update({{"zero_stage", 1}, {"activation_offloading", true}, {"gradient_checkpointing", true}});
  const auto results = [&] { return read_json(folder_ / "out/train_results.json"); };
  trained_by_ranks(config);
  const Json together = results();
  fs::remove_all(folder_ / "out");
  Process zero(rank(0, config, 1)), one(rank(1, config, 1));
  for (Process* p : {&zero, &one}) {
    const Outcome outcome = p->wait();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(results().at("memory"), together.at("memory"));
  EXPECT_EQ(results().value("cuda_graphs", Json()), together.value("cuda_graphs", Json()))
      << "graphs are cut at the same places with other ranks";
}

TEST_F(HarnessRanks, ALostOneEndsTheRun) {
  Json config = divided(base(), 2);
  config.update({{"nproc", 2}, {"max_steps", 100000}, {"ddp_timeout", 8}});
  Process run(launch(config, 2));
  ASSERT_TRUE(run.waits_for("step 2/")) << run.said();
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", run.pid()));
  pid_t first = 0, second = 0;
  file >> first >> second;
  ::kill(second, SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.code, 7);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 was ended by signal 9"));
  EXPECT_NE(::kill(first, 0), 0);
}

}  // namespace
}  // namespace qtrain::e2e
