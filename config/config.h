#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/remarks.h"
#include "config/sections.h"
#include "core/error.h"
#include "core/formats/json.h"
#include "hub/cache.h"
#include "optim/table.h"

namespace qtrain {

/// A name of the hub that a key gives. If it is in the cache, the value of the key is its path there.
struct NamedOnHub {
  std::string key;
  HubName name;
  std::optional<HubPlace> place = {};
};

struct ResolvedConfig {
  Config value;
  std::string dialect;                        ///< its name in `dialects()`
  std::map<std::string, std::string> origin;  ///< canonical key -> "default (hf)", "config.json:12", "command line"
  Diagnostics diagnostics;                    ///< remarks about it: the dialect, ignored keys, ...
  std::vector<NamedOnHub> hub_names = {};

  static constexpr std::string_view kOfPreset = "default (preset ";  ///< how the origin of a preset's value begins

  /// Whether this canonical key has the value of the preset.
  bool of_preset(const std::string& key) const {
    const auto it = origin.find(key);
    return it != origin.end() && it->second.starts_with(kOfPreset);
  }
  /// Whether the user gave this canonical key (under any of its names) instead of leaving its default.
  bool given(const std::string& key) const {
    const auto it = origin.find(key);
    return it != origin.end() && !it->second.starts_with("default");
  }
};

/// key=value pairs of the command line; dots name nested keys. A value is JSON if it parses, else a string.
using Overrides = std::vector<std::pair<std::string, std::string>>;

/// Reads a config in any of the dialects of docs/config.md. Every error is ErrorKind::usage and names file, line and
/// key: unknown keys (with the nearest), types, ranges, choices, contradictions. All problems found are in the message.
ResolvedConfig load_config(const std::filesystem::path& file, const Overrides& overrides = {});

/// Parses a config from text; messages call it `name`. For tests and for configs that a command generates.
ResolvedConfig parse_config(std::string_view text, std::string_view name, const Overrides& overrides = {});

/// A config and all of its problems.
struct CheckedConfig {
  std::optional<ResolvedConfig> config;  ///< what could be read; keys with problems keep their defaults. None: not JSON
  std::vector<ErrorText> problems;
};
CheckedConfig check_config(const std::filesystem::path& file, const Overrides& overrides = {});

/// {"dialect": ..., "values": {key: {"value": ..., "origin": ...}}, "ignored": {key: {"value", "origin", "reason"}},
/// "notes": [...], "warnings": [...]}
Json resolved_json(const ResolvedConfig& config);

/// Warm-up steps of a run of max_steps updates: warmup_steps if >= 1, else a share of max_steps (rounded up).
std::int64_t warmup_steps(const TrainingSection& t, std::int64_t max_steps);
/// logging_steps, eval_steps or save_steps in updates: values below 1 are a share of max_steps (rounded up).
std::int64_t interval_steps(double steps, std::int64_t max_steps);

/// The optimizer of a run.
OptimizerOptions optimizer_options(const TrainingSection& t);

}  // namespace qtrain
