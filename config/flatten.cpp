#include "config/flatten.h"

#include <fmt/format.h>

#include <algorithm>

/// How objects of a config become flat keys: the parts of manifests, and objects of the Python libraries.
namespace qtrain {
namespace {

bool lists(const Json& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Of axolotl: changes to the model's config.json that are keys here.
bool is_about_routers(std::string_view key, const Json& value) {
  if ((key != "model_config" && key != "overrides_of_model_config") || !value.is_object() || value.empty())
    return false;
  return std::ranges::all_of(value.items(), [](const auto& member) {
    return member.key() == "output_router_logits" || member.key() == "router_aux_loss_coef";
  });
}

/// Undoes nesting. Each function reads one object of a manifest; `path` ends in a dot or is empty.
struct Flattener {
  const Dialect& dialect;
  const std::function<void(const std::string&, std::string)>& problem;
  std::vector<RawSetting> out = {};

  void add(std::string_view key, const std::string& path, const Json& value) {
    out.push_back({std::string(key), path, value});
  }

  /// Whether the member of an object only describes; then it is kept as that.
  bool describes(std::string_view object, const std::string& key, const RawSetting& member) {
    const Json& reasons = dialect.table.object("describing");
    const auto of_object = reasons.find(std::string(object));
    if (of_object == reasons.end()) return false;
    for (const auto& [reason, keys] : of_object->items()) {
      if (!lists(keys, key)) continue;
      if (!member.value.is_null())
        out.push_back({.key = {}, .path = member.path, .value = member.value, .description = reason});
      return true;
    }
    return false;
  }

  void members(const Json& object, const std::string& path) {
    for (const auto& [key, value] : object.items()) member(key, path + key, value);
  }

  void member(const std::string& key, const std::string& path, const Json& value) {
    const bool transparent = lists(common_table().object("objects"), key);
    if (transparent && value.is_null()) return;
    if (transparent && value.is_object()) {
      if (key == "peft_config" || key == "lora_config") add("use_peft", path, true);
      return members(value, path + ".");
    }
    if (dialect.name() == "axolotl" && is_about_routers(key, value)) return members(value, path + ".");
    if (key == "base_model") return base_model(path, value);
    if (key == "base_models") return base_models(path, value);
    if (dialect.name() == "expert" && value.is_object()) {
      if (key == "training") return training(path + ".", value);
      if (key == "dataset") return dataset(path + ".", value);
      if (key == "config") return members(value, path + ".");
    }
    if (key == "soft_prompts") {
      if (!value.empty()) problem(path, "soft prompts are not available");
      return;
    }
    add(key, path, value);
  }

  void training(const std::string& path, const Json& object) {
    for (const auto& [key, value] : object.items())
      if (!describes("training", key, {key, path + key, value})) member(key, path + key, value);
  }

  void base_model(const std::string& path, const Json& value) {
    if (!value.is_object()) return add("model_name_or_path", path, value);
    if (const auto it = value.find("name"); it != value.end()) add("model_name_or_path", path + ".name", *it);
    for (const char* key : {"quantization", "prompt_template", "rope_scaling"})
      if (const auto it = value.find(key); it != value.end()) add(key, fmt::format("{}.{}", path, key), *it);
  }

  void base_models(const std::string& path, const Json& value) {
    if (!value.is_array() || value.empty()) return problem(path, "expected a list of models");
    if (value.size() > 1)
      return problem(path, "several base models: keep one, or give model_name_or_path a value and remove them");
    base_model(path, value[0]);
  }

  void dataset(const std::string& path, const Json& object) {
    for (const auto& [key, value] : object.items()) {
      if (key == "path")
        add("dataset_name", path + key, value);
      else if (key == "field_mapping")
        field_mapping(path + key, value);
      else if (key == "tasks" && !value.is_null())
        problem(path + key, "multi-task datasets are not available");
      else if (lists(dialect.table.object("dataset_keys"), key))
        add(key, path + key, value);
      else if (!describes("dataset", key, {key, path + key, value}) && key != "tasks")
        problem(path + key, fmt::format("unknown key \"{}\"", key));
    }
  }

  void field_mapping(const std::string& path, const Json& value) {
    if (value.is_null()) return;
    if (!value.is_object()) return problem(path, "expected an object");
    for (const auto& [key, field] : value.items()) {
      const bool response = key == "response" && field == "output";  // what the alpaca shape calls it
      const std::string place = fmt::format("{}.{}", path, key);
      if (key == "text")
        add("dataset_text_field", place, field);
      else if (!field.is_null() && field != key && !response)
        problem(place, fmt::format("field mapping of {} is not available: rename the field in the rows", key));
    }
  }
};

}  // namespace

std::vector<RawSetting> flatten(const Dialect& dialect, const Json& document,
                                const std::function<void(const std::string&, std::string)>& problem) {
  Flattener f{dialect, problem};
  for (const auto& [key, value] : document.items())
    if (!f.describes("", key, {key, key, value}) && key != "dialect" && key != "$schema") f.member(key, key, value);
  return std::move(f.out);
}

}  // namespace qtrain
