#include "train/trained_result.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/weight_files.h"
#include "train/checkpoint_folders.h"
#include "train/manifest.h"
#include "train/setup.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapterConfig = "adapter_config.json";

bool same_place(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  return a == b || fs::equivalent(a, b, missing);
}

/// Whether a config names the result itself, or a checkpoint, as its model.
bool names_result(const fs::path& model, const fs::path& output) {
  return same_place(model, output) ||
         (step_of_checkpoint(model) >= 0 && same_place(full_path(model).parent_path(), output));
}

/// The model that the last run in an output directory began with, as its config named it.
std::optional<std::string> model_of_run(const fs::path& output) {
  const fs::path file = output / "resolved_config.json";
  if (!fs::exists(file)) return {};
  const Json resolved = read_json(file);
  const Json::json_pointer name("/values/model_name_or_path/value");
  if (!resolved.contains(name) || !resolved[name].is_string()) return {};
  return resolved[name].get<std::string>();
}

/// An adapter's settings without the names of folders.
Json shape_of(const LoraConfig& lora) {
  Json shape = lora_config_json(lora);
  shape.erase("base_model_name_or_path");
  return shape;
}

std::string differing_key(const Json& a, const Json& b) {
  for (const auto& [key, value] : a.items())
    if (b.value(key, Json()) != value)
      return fmt::format("{} is {} there and {} in the config", key, b.value(key, Json()).dump(), value.dump());
  return {};
}

/// Looks for what a config has trained.
class Search {
 public:
  explicit Search(const Config& config)
      : config_(config), request_(training_request(config)), output_(config.training.output_dir) {}

  Measured run() {
    for (const fs::path& folder : candidates()) {
      if (!holds_result(folder)) continue;
      const std::string reason = reason_against(folder);
      if (reason.empty()) return found(folder);
      passed_over_.push_back(fmt::format("{} is not measured: {}", folder.string(), reason));
    }
    Measured start{.model = config_.model.model_name_or_path, .adapter = config_.model.adapter_name_or_path};
    start.passed_over = std::move(passed_over_);
    return start;
  }

 private:
  bool adapts() const { return request_.lora || request_.adapter; }

  /// The output directory, then its checkpoints from the newest on.
  std::vector<fs::path> candidates() const {
    std::vector<fs::path> folders = find_checkpoints(output_);
    folders.push_back(output_);
    std::reverse(folders.begin(), folders.end());
    return folders;
  }

  static bool holds_result(const fs::path& folder) {
    return has_weights(folder) && (fs::exists(folder / kAdapterConfig) || fs::exists(folder / "config.json"));
  }

  /// Why a folder is not what this config has trained; empty: it is.
  std::string reason_against(const fs::path& folder) const {
    const bool adapter = fs::exists(folder / kAdapterConfig);
    if (adapter != adapts())
      return adapter ? "it is an adapter, and the config trains all weights"
                     : "it is a whole model, and the config trains an adapter";
    const auto base = model_of_run(output_);
    if (base && !same_place(*base, config_.model.model_name_or_path))
      return fmt::format("it was trained from {}, and the config says {}", *base, config_.model.model_name_or_path);
    try {
      if (folder != output_) check_manifest(folder, ManifestCheck::hashes);
      if (adapter) return differing_key(shape_of(expected_adapter()), shape_of(load_lora_config(folder)));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      return e.what();
    }
    return {};
  }

  LoraConfig expected_adapter() const { return request_.lora ? *request_.lora : load_lora_config(*request_.adapter); }

  Measured found(const fs::path& folder) {
    Measured m{.kind = folder == output_ ? Measured::Kind::result : Measured::Kind::checkpoint,
               .model = config_.model.model_name_or_path,
               .passed_over = std::move(passed_over_)};
    if (adapts())
      m.adapter = folder.string();
    else
      m.model = folder.string();
    return m;
  }

  const Config& config_;
  ModelRequest request_;
  fs::path output_;
  std::vector<std::string> passed_over_;
};

}  // namespace

std::string_view Measured::kind_name() const {
  switch (kind) {
    case Kind::start: return "start";
    case Kind::adapter: return "adapter";
    case Kind::result: return "result";
    case Kind::checkpoint: return "checkpoint";
  }
  return {};
}

std::string Measured::describe() const {
  const std::string on = adapter ? " on " + model : "", what = adapter ? "the adapter in " + *adapter : model;
  switch (kind) {
    case Kind::start: return fmt::format("{}{}, which the config begins with", what, on);
    case Kind::adapter: return what + on;
    case Kind::result: return fmt::format("{}, the result of this config{}", what, on.empty() ? on : "," + on);
    case Kind::checkpoint: return fmt::format("{}{}, the newest checkpoint: there is no result yet", what, on);
  }
  return {};
}

Measured choose_measured(const Config& config, const MeasureChoice& choice) {
  const ModelSection& m = config.model;
  if (choice.adapter)
    return {.kind = Measured::Kind::adapter, .model = m.model_name_or_path, .adapter = choice.adapter};
  if (choice.start || names_result(m.model_name_or_path, config.training.output_dir))
    return {.model = m.model_name_or_path, .adapter = m.adapter_name_or_path};
  return Search(config).run();
}

Config config_of(const Config& config, const Measured& measured) {
  Config c = config;
  if (measured.model == c.model.model_name_or_path) return c;
  c.model.tokenizer_name_or_path = c.model.tokenizer_name_or_path.value_or(c.model.model_name_or_path);
  c.model.model_name_or_path = measured.model;
  c.model.random_init = false;
  return c;
}

}  // namespace qtrain
