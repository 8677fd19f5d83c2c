#include "config/presets.h"

#include <fmt/format.h>

#include <vector>

#include "config/check.h"
#include "config/dialect_table.h"
#include "config/fields.h"
#include "config/keys.h"

namespace qtrain {
namespace {

const Json& presets() {
  return dialect_table("presets").data;
}

void set_value(ResolvedConfig& config, const std::string& key, const Json& value) {
  if (config.given(key)) return;
  check(assign_field(config.value, key, value).error.empty(), "a preset has an impossible value");
  config.origin[key] = std::string(ResolvedConfig::kOfPreset) + *config.value.training.preset + ")";
}

/// Whether the config gives none of the values that are fixed in a preset another value.
bool agrees(const ResolvedConfig& config, const Json& preset) {
  for (const auto& [key, value] : preset.at("fixed").items())
    if (config.given(key) && find_field(key)->read(config.value) != value) return false;
  return true;
}

/// How to resolve a contradiction: by the first preset that agrees with what the config gives.
std::string remedy_for(const ResolvedConfig& config, const std::string& key) {
  for (const auto& [name, preset] : presets().items())
    if (agrees(config, preset)) return fmt::format("remove {}, or set preset to {}", key, name);
  return fmt::format("remove {}, or preset", key);
}

void refuse_contradictions(ResolvedConfig& config, const Json& preset) {
  for (const auto& [key, value] : preset.at("fixed").items()) {
    const Json given = find_field(key)->read(config.value);
    if (given == value) continue;
    config.diagnostics.problem(config.origin.at(key),
                               fmt::format("{} is {}, but with preset {} it is {}", key, show(key, given),
                                           *config.value.training.preset, show(value)),
                               remedy_for(config, key));
  }
}

/// A preset's value for a key whatever else the config says; discarded if it has none.
Json plain_value(const Json& preset, const std::string& key) {
  if (preset.at("fixed").contains(key)) return preset.at("fixed").at(key);
  for (const Json& row : preset.at("then"))
    if (!row.contains("when") && row.at("set").contains(key)) return row.at("set").at(key);
  return Json(Json::value_t::discarded);
}

}  // namespace

void apply_preset(ResolvedConfig& config) {
  if (!config.value.training.preset) return;
  const Json& preset = presets().at(*config.value.training.preset);
  for (const auto& [key, value] : preset.at("fixed").items()) set_value(config, key, value);
  for (const Json& row : preset.at("then"))
    if (rule_applies(row, known_values(config)))
      for (const auto& [key, value] : row.at("set").items()) set_value(config, key, value);
  if (!config.diagnostics.found_problems()) refuse_contradictions(config, preset);
}

Json presets_json() {
  Json out{{"presets", Json::array()}, {"preset_values", Json::array()}, {"preset_cases", Json::array()}};
  for (const auto& [name, preset] : presets().items()) {
    out["presets"].push_back({{"name", name}, {"about", preset.at("about")}});
    for (const Json& row : preset.at("then"))
      if (row.contains("when")) out["preset_cases"].push_back({{"name", name}, {"row", row}});
  }
  for (const Field& field : fields()) {
    Json values = Json::array();
    bool any = false;
    for (const auto& [name, preset] : presets().items()) {
      const Json value = plain_value(preset, field.name);
      any = any || !value.is_discarded();
      values.push_back(value.is_discarded() ? "" : fmt::format("`{}`", value.dump()));
    }
    if (any) out["preset_values"].push_back({{"key", field.name}, {"values", std::move(values)}});
  }
  return out;
}

}  // namespace qtrain
