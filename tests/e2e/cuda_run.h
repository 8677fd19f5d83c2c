#pragma once
#include <sstream>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

/// Trains on packed text from an untrained model, with gradient accumulation.
class CudaRun : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(folder_ / "model");
    std::vector<Json> rows;
    for (int i = 0; i < 12; ++i) {
      std::string text;
      for (int k = 0; k <= i % 5; ++k) text += " the " + std::to_string((i * 37 + k * k) % 101) + " ways of it";
      rows.push_back({{"text", text}});
    }
    write_file(folder_ / "data.jsonl", jsonl(rows));
  }

  Json config(const Json& changes) const {
    Json c{{"model_name_or_path", (folder_ / "model").string()},
           {"dataset_name", (folder_ / "data.jsonl").string()},
           {"output_dir", (folder_ / "out").string()},
           {"device", "cuda"},
           {"random_init", true},
           {"bf16", false},
           {"threads", 1},
           {"max_steps", 2},
           {"max_length", 48},
           {"packing", true},
           {"per_device_train_batch_size", 2},
           {"gradient_accumulation_steps", 2},
           {"gradient_checkpointing", false},
           {"learning_rate", 0.002},
           {"logging_steps", 1},
           {"save_strategy", "no"}};
    c.update(changes);
    return c;
  }
  Json lora(Json changes) const {
    if (!fs::exists(folder_ / "model/model.safetensors")) give_random_weights(folder_ / "model");
    changes.update({{"random_init", false},
                    {"use_peft", true},
                    {"lora_r", 4},
                    {"lora_dropout", 0.1},
                    {"lora_target_modules", "all-linear"}});
    return config(changes);
  }
  /// Trains and returns the bytes of the trained weights.
  std::string trained(const Json& c) const {
    fs::remove_all(folder_ / "out");
    train_ok(folder_.path(), c);
    return bytes_of(folder_ / "out" / weights_of(c));
  }
  static const char* weights_of(const Json& c) {
    return c.contains("use_peft") ? "adapter_model.safetensors" : "model.safetensors";
  }
  /// Rows of metrics.jsonl that have this key.
  std::vector<Json> metrics(const char* key) const {
    std::vector<Json> rows;
    std::istringstream lines(read_text(folder_ / "out/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const Json row = parse_json(line, "metrics.jsonl"); row.contains(key)) rows.push_back(row);
    return rows;
  }
  std::vector<double> losses() const { return column(history(folder_ / "out", "loss"), "loss"); }

  TempFolder folder_;
};

}  // namespace qtrain::e2e
