#include "train/checkpoint/measured_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/fields.h"
#include "config/keys.h"
#include "core/formats/weight_files.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "model/model_config.h"
#include "model/model_source.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_identity.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapterConfig = "adapter_config.json";

bool same_place(const fs::path& a, const fs::path& b) {
  std::error_code missing;
  return full_path(a) == full_path(b) || fs::equivalent(a, b, missing);
}

/// Whether a config's model is the result itself or one of its checkpoints.
bool names_result(const fs::path& model, const fs::path& output) {
  return same_place(model, output) ||
         (step_of_checkpoint(model) >= 0 && same_place(full_path(model).parent_path(), output));
}

/// What resolved_config.json says about the last run in an output directory.
class EarlierRun {
 public:
  explicit EarlierRun(const fs::path& output) {
    if (const fs::path file = output / "resolved_config.json"; path_exists(file)) resolved_ = read_json(file);
    folder_ = text("/run/folder").value_or("");
  }

  std::optional<std::string> model() const { return text("/values/model_name_or_path/value"); }
  std::optional<Json> value(const std::string& key) const { return find(pointer("/values", key, "/value")); }
  bool had_no_effect(const std::string& key) const {
    // "inert" in older versions.
    return find(pointer("/ignored", key, "")).has_value() || find(pointer("/inert", key, "")).has_value();
  }

  /// Whether a name given in that run and one given now mean the same place. Relative names still match after their
  /// folder was moved along with them.
  bool same_name(const std::string& was, const std::string& is) const {
    std::error_code missing;
    const fs::path then = fs::path(folder_) / was;
    return same_place(then, is) || (was == is && (folder_.empty() || !fs::exists(then, missing)));
  }

  /// Likewise for all strings in a value.
  bool same_names(const Json& was, const Json& is) const {
    if (was.is_string() && is.is_string()) return same_name(was.get<std::string>(), is.get<std::string>());
    if (was.type() != is.type() || !was.is_structured() || was.size() != is.size()) return was == is;
    if (was.is_array()) {
      for (std::size_t i = 0; i < was.size(); ++i)
        if (!same_names(was[i], is[i])) return false;
      return true;
    }
    for (const auto& [key, value] : was.items())
      if (!is.contains(key) || !same_names(value, is[key])) return false;
    return true;
  }

 private:
  static Json::json_pointer pointer(const char* before, const std::string& key, const char* behind) {
    return Json::json_pointer(before) / key / Json::json_pointer(behind);
  }
  std::optional<Json> find(const Json::json_pointer& at) const {
    return resolved_.contains(at) ? std::optional(resolved_[at]) : std::nullopt;
  }
  std::optional<std::string> text(const char* at) const {
    const auto found = find(Json::json_pointer(at));
    return found && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
  }

  Json resolved_ = Json::object();
  std::string folder_;  ///< working directory of the earlier run; empty if not recorded
};

/// Keys whose values are file names.
constexpr std::string_view kKeysOfNames[] = {"tokenizer_name_or_path", "chat_template_path", "dataset_name",
                                             "dataset_mixture"};

bool decides_result(std::string_view key) {
  const OnResume kind = on_resume(key);
  return kind != OnResume::note && kind != OnResume::silent;
}

/// Config values that affect the result and differ from those of the run.
std::vector<std::string> other_settings(const EarlierRun& run, const ResolvedConfig& config) {
  std::vector<std::string> out;
  const Json values = resolved_json(config)["values"];
  for (const auto& [key, resolved] : values.items()) {
    const Json& is = resolved["value"];
    const auto was = run.value(key);
    if (!was || !decides_result(key) || run.had_no_effect(key) || config.diagnostics.ignores(key)) continue;
    // The evaluation rows come from elsewhere.
    if (key == "eval_split" && !config.value.data.eval_dataset_name.empty()) continue;
    const bool names = std::ranges::find(kKeysOfNames, key) != std::end(kKeysOfNames);
    if (names ? run.same_names(*was, is) : comparable_value(key, *was) == comparable_value(key, is)) continue;
    out.push_back(fmt::format("{} = {}, the config says {}", key, show(*was), show(is)));
  }
  return out;
}

/// An adapter's settings in files, without names of models.
Json shape_of(const LoraConfig& lora) {
  Json shape = lora_config_json(in_files(lora));
  shape.erase("init_lora_weights");  // not read from files
  shape.erase("base_model_name_or_path");
  shape.erase("revision");
  shape["modules_to_save"] = comparable_value("lora_modules_to_save", shape["modules_to_save"]);
  return shape;
}

std::string differing_key(const Json& a, const Json& b) {
  for (const auto& [key, value] : a.items())
    if (b.value(key, Json()) != value)
      return fmt::format("{} is {} there but {} in the config", key, b.value(key, Json()).dump(), value.dump());
  return {};
}

/// Searches output_dir for what a config has trained.
class Search {
 public:
  explicit Search(const ResolvedConfig& config)
      : resolved_(config),
        config_(config.value),
        request_(training_request(config.value)),
        output_(config.value.training.output_dir),
        run_(output_) {}

  Measured run() {
    for (const fs::path& folder : candidates()) {
      if (!holds_result(folder)) continue;
      const std::string reason = reason_against(folder);
      if (reason.empty()) return found(folder);
      passed_over_.push_back(fmt::format("{} is not measured: {}", folder.string(), reason));
      if (folder == output_) beside_ = fmt::format("{} is not measured", output_.string());
    }
    Measured start{.model = config_.model.model_name_or_path, .adapter = config_.model.adapter_name_or_path};
    start.passed_over = std::move(passed_over_);
    return start;
  }

 private:
  bool adapts() const { return request_.lora || request_.adapter; }

  /// The output directory and its checkpoints, newest first; at equal steps the output directory comes first.
  std::vector<fs::path> candidates() const {
    std::vector<fs::path> folders = find_checkpoints(output_);
    std::reverse(folders.begin(), folders.end());
    const auto step = manifest_step(output_);
    const auto older = [&](const fs::path& checkpoint) { return !step || step_of_checkpoint(checkpoint) <= *step; };
    folders.insert(std::ranges::find_if(folders, older), output_);
    return folders;
  }

  static bool holds_result(const fs::path& folder) {
    return has_weights(folder) && (path_exists(folder / kAdapterConfig) || path_exists(folder / "config.json"));
  }

  /// Why a folder is not what this config has trained; empty if it is.
  std::string reason_against(const fs::path& folder) const {
    const bool adapter = path_exists(folder / kAdapterConfig);
    if (adapter != adapts())
      return adapter ? "it is an adapter, but the config trains all weights"
                     : "it is a full model, but the config trains an adapter";
    if (folder == output_ && !manifest_step(output_))
      return fmt::format("it has no {}: it is from an earlier run, or was not written completely", kManifest);
    const auto base = run_.model();
    if (base && !run_.same_name(*base, config_.model.model_name_or_path))
      return fmt::format("it was trained from {}, but the config says {}", *base, config_.model.model_name_or_path);
    try {
      check_manifest(folder, ManifestCheck::hashes_unless_stopped,
                     folder == output_ ? Beside::anything : Beside::notes);
      if (adapter) return differing_key(shape_of(expected_adapter()), shape_of(load_lora_config(folder)));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      return e.what();
    }
    return {};
  }

  LoraConfig expected_adapter() const {
    if (!request_.lora) return load_lora_config(*request_.adapter);
    return for_model(*request_.lora, load_model_config(model_path(request_.model)));
  }

  Measured found(const fs::path& folder) {
    Measured m{.kind = folder == output_ ? Measured::Kind::result : Measured::Kind::checkpoint,
               .model = config_.model.model_name_or_path,
               .passed_over = std::move(passed_over_),
               .other_settings = other_settings(run_, resolved_)};
    if (folder != output_ && beside_.empty())
      beside_ =
          holds_result(output_) ? fmt::format("the result in {} is older", output_.string()) : "there is no result yet";
    m.beside = std::move(beside_);
    if (adapts())
      m.adapter = folder.string();
    else
      m.model = folder.string();
    return m;
  }

  const ResolvedConfig& resolved_;
  const Config& config_;
  ModelRequest request_;
  fs::path output_;
  EarlierRun run_;
  std::vector<std::string> passed_over_;
  std::string beside_;
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
    case Kind::start: return fmt::format("{}{}, the model that the config starts from", what, on);
    case Kind::adapter: return what + on;
    case Kind::result:
      return fmt::format("{}, the result of {}{}", what,
                         other_settings.empty() ? "this config" : "a config with other settings",
                         on.empty() ? on : "," + on);
    case Kind::checkpoint: return fmt::format("{}{}, the newest checkpoint: {}", what, on, beside);
  }
  return {};
}

Measured choose_measured(const ResolvedConfig& config, const MeasureChoice& choice) {
  const ModelSection& m = config.value.model;
  if (choice.adapter)
    return {.kind = Measured::Kind::adapter, .model = m.model_name_or_path, .adapter = choice.adapter};
  if (choice.start || names_result(m.model_name_or_path, config.value.training.output_dir))
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
