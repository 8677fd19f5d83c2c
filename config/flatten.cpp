#include "config/flatten.h"

#include <fmt/format.h>

#include <algorithm>

/// How objects of a config become flat keys: the parts of manifests, and objects of the Python libraries.
namespace qtrain {
namespace {

bool lists(const Json& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Undoes nesting. Each function reads one object; `path` ends in a dot or is empty.
struct Flattener {
  const DialectTable& dialect;
  const ConfigDocument& document;
  Judge& judge;
  std::vector<std::pair<std::string, Setting>> out = {};

  void add(const std::string& key, const std::string& path, const Json& value) {
    out.push_back({key, {path, document.place_of(path), value}});
  }
  void problem(const std::string& path, const std::string& text) {
    judge.problem(document.place_of(path), fmt::format("\"{}\": {}", path, text));
  }

  /// Whether the member of an object only describes, which is all that is said of it.
  bool describes(const std::string& object, const std::string& key, const Setting& member) {
    const Json reasons = dialect.object("describing").value(object, Json::object());
    for (const auto& [reason, keys] : reasons.items()) {
      if (!lists(keys, key)) continue;
      if (!member.value.is_null())
        judge.say({.level = RemarkLevel::silent,
                   .origin = member.place,
                   .text = reason,
                   .ignored = member.written,
                   .value = member.value});
      return true;
    }
    return false;
  }

  void members(const std::string& object, const std::string& path, const Json& value) {
    for (const auto& [key, member] : value.items()) {
      const std::string inner = path + key;
      if (!describes(object, key, {inner, document.place_of(inner), member})) this->member(key, inner, member);
    }
  }

  /// Whether the members of an object count as if they stood at the top: in some only if it has no others.
  bool is_transparent(const std::string& key, const Json& value) {
    if (common_table().lists("objects", key)) return true;
    const Json only = dialect.object("objects_of").value(key, Json());
    return only == "any" || (only.is_array() && !value.empty() &&
                             std::ranges::all_of(value.items(), [&](const auto& m) { return lists(only, m.key()); }));
  }

  void member(const std::string& key, const std::string& path, const Json& value) {
    if (value.is_null() && common_table().lists("objects", key)) return;
    if (value.is_object() && is_transparent(key, value)) {
      if (key == "peft_config" || key == "lora_config") add("use_peft", path, true);
      return members(key, path + ".", value);
    }
    if (key == "base_model") return renamed(key, path, value);
    if (key == "base_models") return base_models(path, value);
    if (key == "dataset" && dialect.name == "expert" && value.is_object()) return renamed(key, path, value);
    add(key, path, value);
  }

  void base_models(const std::string& path, const Json& value) {
    if (!value.is_array() || value.empty()) return problem(path, "expected a list of models");
    if (value.size() > 1)
      return problem(path, "several base models: keep one, or give model_name_or_path a value and remove them");
    renamed("base_model", path, value[0]);
  }

  /// An object whose members are settings as a table says.
  void renamed(const std::string& object, const std::string& path, const Json& value) {
    const Json& names = dialect_table("expert").object("members_of").at(object);
    if (!value.is_object()) return add(names.begin()->get<std::string>(), path, value);
    for (const auto& [key, member] : value.items()) {
      const std::string inner = fmt::format("{}.{}", path, key);
      if (key == "field_mapping")
        field_mapping(inner, member);
      else if (const auto name = names.find(key); name != names.end())
        add(name->get<std::string>(), inner, member);
      else if (object == "dataset" && !describes(object, key, {inner, document.place_of(inner), member}))
        problem(inner, fmt::format("unknown key \"{}\"", key));
    }
  }

  void field_mapping(const std::string& path, const Json& value) {
    if (value.is_null()) return;
    if (!value.is_object()) return problem(path, "expected an object");
    for (const auto& [key, field] : value.items()) {
      const bool response = key == "response" && field == "output";  // what the alpaca shape calls it
      const std::string inner = fmt::format("{}.{}", path, key);
      if (key == "text")
        add("dataset_text_field", inner, field);
      else if (!field.is_null() && field != key && !response)
        problem(inner, fmt::format("field mapping of {} is not available: rename the field in the rows", key));
    }
  }
};

}  // namespace

std::vector<std::pair<std::string, Setting>> flatten(const DialectTable& dialect, const ConfigDocument& document,
                                                     Judge& judge) {
  Json settings = document.value;
  for (const char* about : {"dialect", "$schema"}) settings.erase(about);
  Flattener f{dialect, document, judge};
  f.members("", "", settings);
  return std::move(f.out);
}

}  // namespace qtrain
