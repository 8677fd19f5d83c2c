#pragma once
// Programs that are told to stop.
#include <fmt/format.h>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {

// Long enough for an answer, and short compared with the jobs below.
inline constexpr std::chrono::seconds kAtOnce{kThreadSanitizer ? 20 : 8};

inline std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline Launch launch_typed(const std::vector<std::string>& words) {
  Launch launch = launch_of({.words = words});
  launch.columns = 80;
  launch.environment = {"TERM=xterm"};
  return launch;
}

class Interrupted : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_ / name; }
  /// A run with `batches` micro-batches per step.
  std::vector<std::string> training(int batches, int steps) {
    Json config = tiny_lora_run(at("out"));
    config.update({{"max_steps", steps}, {"gradient_accumulation_steps", batches}, {"save_strategy", "no"}});
    write_file(at("run.json"), dump_json(config));
    return {at("run.json").string()};
  }
  void write_rows(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) rows += "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}\n";
    write_file(at("rows.jsonl"), rows);
  }
  /// A model of about 100 MB with random weights, a tokenizer and a template.
  void write_large_model(const fs::path& folder) {
    write_model(folder, {{"hidden_size", 512},
                         {"intermediate_size", 4096},
                         {"num_hidden_layers", 4},
                         {"num_attention_heads", 8},
                         {"num_key_value_heads", 8},
                         {"head_dim", 64}});
  }
  /// The same with the smallest shapes, except for those in `sizes`.
  void write_model(const fs::path& folder, const Json& sizes) {
    write_untrained_model(folder);
    Json config = read_json(folder / "config.json");
    config.update(sizes);
    write_file(folder / "config.json", dump_json(config));
    Json run = tiny_run(at("made"));
    run.update({{"model_name_or_path", folder.string()},
                {"random_init", true},
                {"max_steps", 1},
                {"use_peft", false},
                {"optim", "sgd"},
                {"save_strategy", "no"}});
    write_file(at("made.json"), dump_json(run));
    qtrain_ok({.words = {at("made.json").string()}});
    fs::rename(at("made/model.safetensors"), folder / "model.safetensors");
  }
  /// An adapter of about 150 MB for that model, with the settings of `like` except for the rank.
  static void write_large_adapter(const fs::path& like, const fs::path& folder) {
    constexpr std::int64_t kRank = 1024, kInner = 512, kOuter = 4096;
    fs::create_directories(folder);
    Json config = read_json(like / "adapter_config.json");
    config.update({{"r", kRank}, {"target_modules", Json::array({"down_proj", "up_proj"})}});
    write_file(folder / "adapter_config.json", dump_json(config));
    const std::vector<float> values(kRank * kOuter);
    const auto zeros = [&](std::int64_t rows, std::int64_t columns) {
      return view_of(std::span(values).first(static_cast<std::size_t>(rows * columns)), {rows, columns});
    };
    NamedTensors tensors;
    for (int layer = 0; layer < 4; ++layer)
      for (const bool up : {true, false}) {
        const std::string name = fmt::format("base_model.model.model.layers.{}.mlp.{}_proj", layer, up ? "up" : "down");
        const std::int64_t in = up ? kInner : kOuter, out = up ? kOuter : kInner;
        tensors.emplace_back(name + ".lora_A.weight", zeros(kRank, in));
        tensors.emplace_back(name + ".lora_B.weight", zeros(out, kRank));
      }
    write_safetensors(folder / "adapter_model.safetensors", tensors);
  }
  TempFolder folder_;
};

/// Stops a program at a precise moment of its work, however busy the machine is.
struct Moment {
  std::string call, text;  ///< see preload/timed_signal.cpp
  int number = 1;
};

inline std::optional<Launch> launch_stopped(const std::vector<std::string>& words, const Moment& moment) {
  if (std::string_view(QTRAIN_TIMED_SIGNAL).empty()) return {};
  Launch launch = launch_typed(words);
  launch.environment.insert(launch.environment.end(),
                            {fmt::format("LD_PRELOAD={}", QTRAIN_TIMED_SIGNAL), "TIMED_SIGNAL_CALL=" + moment.call,
                             "TIMED_SIGNAL_TEXT=" + moment.text, fmt::format("TIMED_SIGNAL_NUMBER={}", moment.number)});
  return launch;
}

}  // namespace qtrain::e2e
