#pragma once
// Runs of several ranks.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

/// The steps of `config` divided among several ranks: each does its share of the micro-batches.
inline Json divided(Json config, int ranks) {
  const int batches = config.at("gradient_accumulation_steps");
  EXPECT_EQ(batches % ranks, 0);
  config.update({{"nproc", ranks}, {"device", "cpu"}, {"gradient_accumulation_steps", batches / ranks}});
  return config;
}

/// The processes that `parent` has started, in that order.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", parent));
  return {std::istream_iterator<pid_t>(file), {}};
}

class Ranks : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_ / name; }
  /// Six micro-batches of one row per update, with 21 rows: the last update of an epoch has three.
  Json base() const {
    Json config = tiny_lora_run(at("out"));
    config.update({{"per_device_train_batch_size", 1},
                   {"gradient_accumulation_steps", 6},
                   {"deterministic_reduce", true},
                   {"max_steps", 9}});
    return config;
  }
  std::vector<std::string> words(const Json& config) const {
    write_file(at("run.json"), dump_json(config));
    return {at("run.json").string()};
  }
  /// A run of many steps on `ranks` ranks that saves every second one.
  Json long_run(int ranks) const {
    Json config = divided(base(), ranks);
    config.update({{"max_steps", 100000},
                   {"save_strategy", "steps"},
                   {"save_steps", 2},
                   {"save_total_limit", 2},
                   {"ddp_timeout", 4}});
    return config;
  }
  TempFolder folder_;
};

}  // namespace qtrain::e2e
