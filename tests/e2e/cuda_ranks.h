#pragma once
// Runs of several ranks with one GPU each.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/os/file.h"
#include "dist/nccl_library.h"
#include "dist/socket.h"
#include "tests/e2e/cuda_run.h"

namespace qtrain::e2e {

inline const std::string kStandIn = QTRAIN_NCCL_FOLDER;  // empty: NCCL itself

class CudaRanks : public CudaRun {
 protected:
  void SetUp() override {
    const std::string problem = kStandIn.empty() ? nccl_state().problem : "";
    if (!problem.empty()) GTEST_SKIP() << problem;
    CudaRun::SetUp();
  }
  /// Four micro-batches per update for any number of ranks, so the sums are the same.
  Json base() const {
    return lora({{"gradient_accumulation_steps", 4}, {"deterministic_reduce", true}, {"max_steps", 2}});
  }
  /// The same with all weights trained, and clipping by the norm.
  Json all_weights() const {
    return config({{"gradient_accumulation_steps", 4},
                   {"per_device_train_batch_size", 1},
                   {"deterministic_reduce", true},
                   {"max_grad_norm", 0.1}});
  }
  static Json divided(Json config, int ranks) {
    config["gradient_accumulation_steps"] = config.at("gradient_accumulation_steps").get<int>() / ranks;
    return config;
  }
  /// The environment of a process that finds NCCL and this many GPUs.
  static std::vector<std::string> with_gpus(int gpus) {
    if (kStandIn.empty()) return {};
    const char* before = std::getenv("LD_LIBRARY_PATH");
    return {fmt::format("LD_LIBRARY_PATH={}:{}", kStandIn, before ? before : ""),
            fmt::format("QTRAIN_EMULATION=devices={}", gpus)};
  }
  Launch launch(const Json& config, int gpus) const {
    write_file(folder_ / "run.json", dump_json(config));
    Launch launch = launch_of({.words = {(folder_ / "run.json").string()}});
    launch.environment = with_gpus(gpus);
    return launch;
  }
  /// One of two ranks, started as torchrun starts it on a machine with `of_machine` ranks.
  Launch rank(int number, const Json& config, int of_machine = 2) const {
    Launch one = launch(config, 2);
    for (const std::string& variable :
         {fmt::format("RANK={}", number), fmt::format("LOCAL_RANK={}", number % of_machine),
          std::string("WORLD_SIZE=2"), fmt::format("LOCAL_WORLD_SIZE={}", of_machine),
          std::string("MASTER_ADDR=127.0.0.1"), fmt::format("MASTER_PORT={}", port_)})
      one.environment.push_back(variable);
    const bool share_a_gpu = of_machine == 1 || (kStandIn.empty() && cuda_device_count() < 2);
    if (share_a_gpu) one.environment.push_back(fmt::format("NCCL_HOSTID={}", number));
    return one;
  }
  /// The trained weights of two ranks that each do half of the micro-batches.
  std::string trained_by_two(const Json& config) const { return trained_by_ranks(divided(config, 2)); }
  /// The trained weights of a config for two ranks.
  std::string trained_by_ranks(const Json& config) const {
    fs::remove_all(folder_ / "out");
    Process zero(rank(0, config)), one(rank(1, config));
    for (Process* p : {&zero, &one}) {
      const Outcome outcome = p->wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
    return bytes_of(folder_ / "out" / weights_of(config));
  }
  void expect_losses(const std::vector<double>& wanted, double tolerance, const std::string& of) const {
    const std::vector<double> got = losses();
    ASSERT_EQ(got.size(), wanted.size()) << of;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << of << ", step " << i + 1;
  }
  /// Checks that the last run allocated what was planned and replayed its steps.
  void expect_planned_memory_and_graphs() const {
    const Json results = read_json(folder_ / "out/train_results.json"), memory = results.at("memory");
    EXPECT_EQ(memory.at("planned").at("total"), memory.at("allocated")) << memory;
    EXPECT_GT(results.value("/cuda_graphs/replays"_json_pointer, 0), 0);
  }
  std::uint16_t port_ = Listener({.host = "127.0.0.1"}).port();  // was free a moment ago
};

/// Tests that need a chosen number of GPUs, which only the harness provides.
class HarnessRanks : public CudaRanks {
 protected:
  void SetUp() override {
    if (kStandIn.empty()) GTEST_SKIP() << "only the harness has any number of GPUs";
    CudaRanks::SetUp();
  }
};

}  // namespace qtrain::e2e
