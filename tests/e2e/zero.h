#pragma once
// Runs whose training state is sharded among ranks.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

/// Files of a checkpoint that contain no times.
inline constexpr const char* kTensorFiles[] = {"optimizer.safetensors", "model.safetensors",
                                               "adapter_model.safetensors", "master_weights.safetensors"};

/// The contents of the existing ones, by name.
inline std::map<std::string, std::string> tensor_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : kTensorFiles)
    if (fs::exists(folder / name)) files[name] = bytes_of(folder / name);
  return files;
}

class Zero : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_ / name; }

  /// A model with five blocks, which take turns in memory for two.
  void write_model() const {
    if (fs::exists(at("model"))) return;
    write_untrained_model(at("model"));
    Json config = read_json(at("model/config.json"));
    config["num_hidden_layers"] = 5;
    write_file(at("model/config.json"), dump_json(config));
    give_random_weights(at("model"));
  }
  /// Trains all weights of a model whose embedding, head and MLP are cut, with six micro-batches per update.
  Json base() const {
    write_model();
    Json config = tiny_run(at("out"));
    config.update({{"model_name_or_path", at("model").string()},
                   {"random_init", true},
                   {"per_device_train_batch_size", 1},
                   {"gradient_accumulation_steps", 6},
                   {"deterministic_reduce", true},
                   {"save_strategy", "steps"},
                   {"save_steps", 2},
                   {"max_steps", 4},
                   {"device", "cpu"}});
    return config;
  }
  static Json adapter() {
    return {{"random_init", false},
            {"use_peft", true},
            {"use_dora", true},
            {"lora_dropout", 0.1},
            {"lora_target_modules", "all-linear"}};
  }
  /// A model of two blocks whose weights are read from files.
  static Json golden() {
    return {{"model_name_or_path", (kGoldens / "llama_gqa3_tied").string()}, {"random_init", false}};
  }
  static Json divided(Json config, int ranks, int stage) {
    config.update(
        {{"nproc", ranks}, {"gradient_accumulation_steps", 6 / ranks}, {"zero_stage", stage}, {"ddp_timeout", 20}});
    return config;
  }
  /// The results of a run: checkpoints, final model, and losses.
  std::vector<std::map<std::string, std::string>> results(const Json& config) const {
    fs::remove_all(at("out"));
    train_ok(folder_.path(), config);
    std::vector<std::map<std::string, std::string>> all{tensor_files(at("out")), tensor_files(at("out/checkpoint-2"))};
    Json rows = history_without_times(at("out"));
    for (Json& row : rows) row.erase("epoch");
    all.push_back({{"history", rows.dump()}});
    return all;
  }
  /// The planned memory of a run; checks that the run uses exactly that many bytes.
  Json planned_memory(const Json& config) const {
    fs::remove_all(at("out"));
    train_ok(folder_.path(), config);
    const Json memory = read_json(at("out/train_results.json")).at("memory");
    const std::string said = qtrain_ok({.words = {"estimate", at("config.json").string(), "--json"}}).out;
    EXPECT_EQ(Json::parse(said).at("memory"), memory.at("planned")) << config;
    EXPECT_EQ(memory.at("allocated"), memory.at("planned").at("total")) << config;
    return memory.at("planned");
  }
  /// Compares one rank without sharding with every stage on several ranks.
  void expect_the_same(const Json& config) const {
    const auto alone = results(config);
    EXPECT_FALSE(alone[1].at("optimizer.safetensors").empty());
    for (const auto& [ranks, stage] : {std::pair(3, 1), {2, 2}, {3, 3}})
      EXPECT_EQ(results(divided(config, ranks, stage)), alone) << ranks << " ranks, stage " << stage;
  }
  TempFolder folder_;
};

}  // namespace qtrain::e2e
