#include "config/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "config/keys.h"
#include "config/translate.h"

namespace qtrain {
namespace {

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

/// The canonical name of a key, given its path.
std::string canonical(const std::string& path) {
  return std::string(canonical_key(last_name(path)));
}

bool has_name(const Json& names, std::string_view name) {
  return std::ranges::find(names, Json(name)) != names.end();
}

/// Reads one document: flattens its keys and then applies the row of each.
class SettingReader {
 public:
  SettingReader(Draft& draft, const DialectTable& dialect, const ConfigDocument& document)
      : draft_(draft), dialect_(dialect), document_(document) {}

  Settings read() {
    Json keys = document_.value;
    for (const char* about : {"dialect", "$schema"}) keys.erase(about);
    members("", {.written = "", .place = document_.name, .value = std::move(keys)});
    for (const auto& [key, raw] : flat_) take(key, raw);
    for (const auto& [name, of] : common_table().object("adapter_names").items()) {
      const auto is_used = [&](const auto& flat) { return last_name(flat.second.written) == name; };
      if (draft_.adapter_class.empty() && std::ranges::any_of(flat_, is_used)) draft_.adapter_class = of;
    }
    return std::move(settings_);
  }

 private:
  // Parts of manifests, and objects of the Python libraries, become flat keys.

  Setting member_of(const Setting& object, const std::string& key, const Json& value) const {
    const std::string path = object.written.empty() ? key : object.written + "." + key;
    return {path, document_.place_of(path), value};
  }

  void problem(const Setting& about, const std::string& text) { draft_.problem(about, ": " + text); }

  /// Whether a member of an object only describes something. If so, lists it among the ignored keys.
  bool describes(const std::string& object, const std::string& key, const Setting& member) {
    const KeyRow* row = dialect_.find(object.empty() ? key : object + "." + key);
    if (!row || row->status != KeyStatus::described) return false;
    ignore(*row, member);
    return true;
  }

  void members(const std::string& name, const Setting& object) {
    for (const auto& [key, value] : object.value.items()) {
      const Setting member = member_of(object, key, value);
      if (!describes(name, key, member)) take_apart(key, member);
    }
  }

  /// Whether the members of an object count as top-level keys; for some objects only if they have no other members.
  bool is_transparent(const std::string& key, const Json& value) {
    if (common_table().lists("objects", key)) return true;
    const Json only = dialect_.object("objects_of").value(key, Json());
    return only == "any" ||
           (only.is_array() && !value.empty() &&
            std::ranges::all_of(value.items(), [&](const auto& m) { return has_name(only, m.key()); }));
  }

  void take_apart(const std::string& key, const Setting& raw) {
    if (raw.value.is_null() && common_table().lists("objects", key)) return;
    if (raw.value.is_object() && is_transparent(key, raw.value)) {
      if (key == "peft_config" || key == "lora_config") flat_.emplace_back("use_peft", raw.with(true));
      return members(key, raw);
    }
    if (key == "base_model") return renamed(key, raw);
    if (key == "base_models") return base_models(raw);
    if (key == "dataset" && dialect_.name == "expert" && raw.value.is_object()) return renamed(key, raw);
    flat_.emplace_back(key, raw);
  }

  void base_models(const Setting& list) {
    if (!list.value.is_array() || list.value.empty()) return problem(list, "expected a list of models");
    if (list.value.size() > 1)
      return problem(list, "several base models: keep one, or remove the list and set model_name_or_path");
    renamed("base_model", list.with(list.value[0]));
  }

  /// Reads an object whose members a table maps to settings.
  void renamed(const std::string& name, const Setting& object) {
    const Json& names = dialect_table("expert").object("members_of").at(name);
    if (!object.value.is_object()) return flat_.push_back({*names.begin(), object});
    for (const auto& [key, value] : object.value.items()) {
      const Setting member = member_of(object, key, value);
      if (key == "field_mapping")
        field_mapping(member);
      else if (names.contains(key))
        flat_.push_back({names.at(key), member});
      else if (name == "dataset" && !describes(name, key, member))
        problem(member, fmt::format("unknown key \"{}\"", key));
    }
  }

  void field_mapping(const Setting& mapping) {
    if (mapping.value.is_null()) return;
    if (!mapping.value.is_object()) return problem(mapping, "expected an object");
    for (const auto& [key, field] : mapping.value.items()) {
      const Setting member = member_of(mapping, key, field);
      const bool response = key == "response" && field == "output";  // the name in alpaca rows
      if (key == "text")
        flat_.emplace_back("dataset_text_field", member);
      else if (!field.is_null() && field != key && !response)
        problem(member, fmt::format("field mapping of {} is not available: rename the field in the rows", key));
    }
  }

  /// The meaning of a key in the dialect takes precedence over the common one.
  void take(const std::string& name, const Setting& raw) {
    const std::string key(canonical_key(name));
    if (raw.overrides()) draft_.diagnostics.retract(key);
    if (const KeyRow* own = row_in(dialect_, name)) return take_row(*own, raw);
    if (const KeyRow* row = row_in(common_table(), key)) return take_row(*row, raw);
    if (find_field(key)) return add(key, raw);
    const std::string near = hint(draft_.diagnostics, name, known_keys());
    draft_.diagnostics.problem(raw.place, fmt::format("unknown key \"{}\"", raw.written),
                               near.empty()   ? "qtrain config lists all keys"
                               : near == name ? "it is a key of another dialect: see docs/config.md"
                                              : fmt::format("did you mean \"{}\"?", near));
  }

  /// The row for a key; a canonical key means itself unless the table translates it.
  static const KeyRow* row_in(const DialectTable& table, std::string_view name) {
    const KeyRow* row = table.find(name);
    if (!row || row->status == KeyStatus::described || (find_field(name) && !row->is_translated())) return nullptr;
    return row;
  }

  void take_row(const KeyRow& row, const Setting& raw) {
    if (!row.is_translated()) return ignore(row, raw);
    const Translation made = translate(row, raw.value);
    if (!made.problem.empty())
      draft_.diagnostics.say({.level = RemarkLevel::problem,
                              .origin = raw.place,
                              .text = fmt::format("\"{}\": {}", raw.written, made.problem),
                              .remedy = row.remedy,
                              .key = canonical(raw.written)});
    for (const std::string& remark : made.remarks)
      draft_.diagnostics.say(
          {.origin = raw.place, .text = fmt::format("\"{}\": {}", raw.written, remark), .key = canonical(raw.written)});
    for (const auto& [target, value] : made.settings) {
      const KeyRow* other = row_in(common_table(), target);
      other && !other->is_translated() ? ignore(*other, raw.with(value)) : add(target, raw.with(value));
    }
  }

  /// A key that is ignored or unsupported, unless its value means what the program does anyway.
  void ignore(const KeyRow& row, const Setting& raw) {
    if (row.is_neutral(raw.value)) return;
    Remark remark{.origin = raw.place, .text = row.reason, .key = canonical(raw.written)};
    if (row.status == KeyStatus::unsupported) {
      remark.level = RemarkLevel::problem;
      remark.text =
          fmt::format("\"{}\": {} cannot be honored: {}", raw.written, show(raw.written, raw.value), row.reason);
      remark.remedy = "remove the key";
    } else {
      remark.level = row.status == KeyStatus::warned      ? RemarkLevel::warning
                     : row.status == KeyStatus::described ? RemarkLevel::silent
                                                          : RemarkLevel::note;
      remark.ignored = raw.written;
      remark.value = raw.value;
    }
    draft_.diagnostics.say(std::move(remark));
  }

  /// Adds a setting unless the same document already gave the key another value.
  void add(const std::string& key, const Setting& setting) {
    if (const Field* field = find_field(key); setting.value.is_null() && !(field && field->takes_null)) return;
    const auto [it, is_new] = settings_.emplace(key, setting);
    if (is_new || it->second.value == setting.value) return;
    draft_.problem(setting,
                   fmt::format(" is {}, but \"{}\" already set {} to {}", show(setting.written, setting.value),
                               it->second.written, key, show(it->second.written, it->second.value)),
                   "keep one of them");
  }

  Draft& draft_;
  const DialectTable& dialect_;
  const ConfigDocument& document_;
  std::vector<std::pair<std::string, Setting>> flat_;
  Settings settings_;
};

/// Removes what a file sets for a key.
void forget(Draft& draft, const std::string& name) {
  draft.diagnostics.retract(canonical(name));
  std::erase_if(draft.settings, [&, key = canonical_key(name)](const auto& setting) {
    return setting.first == key || setting.second.written == name;
  });
}

/// Keys that name the same rows in different ways.
constexpr std::array<std::array<std::string_view, 3>, 2> kAlternatives = {
    {{"dataset_name", "dataset_mixture", "~dataset"}, {"eval_dataset_name", "~eval_dataset", ""}}};

bool are_alternatives(std::string_view a, std::string_view b) {
  return std::ranges::any_of(kAlternatives, [&](const auto& names) {
    return std::ranges::count(names, a) > 0 && std::ranges::count(names, b) > 0;
  });
}

/// Removes what the file sets by the key `name` and by other keys for the same thing as `over`.
void make_room(Draft& draft, const std::string& name, const Settings& over) {
  std::set<std::string> written;  // keys as written in the file
  for (const auto& [key, setting] : draft.settings) {
    const auto replaces = [&, key = key](const auto& given) { return are_alternatives(key, given.first); };
    if (!setting.overrides() && (setting.written == name || std::ranges::any_of(over, replaces)))
      written.insert(setting.written);
  }
  for (const std::string& old : written)
    if (canonical(old) != canonical_key(name)) draft.diagnostics.retract(canonical(old));
  std::erase_if(draft.settings, [&](const auto& setting) {
    return !setting.second.overrides() && written.contains(setting.second.written);
  });
}

/// {"a": {"b": value}} for "a.b".
Json nested(const std::string& path, Json value) {
  const auto dot = path.rfind('.');
  if (dot == std::string::npos) return {{path, std::move(value)}};
  return nested(path.substr(0, dot), {{path.substr(dot + 1), std::move(value)}});
}

}  // namespace

void read_settings(Draft& draft, const DialectTable& dialect, const ConfigDocument& document) {
  draft.settings = SettingReader(draft, dialect, document).read();
}

void override_setting(Draft& draft, const DialectTable& dialect, const std::string& key, const std::string& value) {
  Json given = Json::parse(value, nullptr, false);
  if (given.is_discarded()) given = value;
  if (given.is_null()) forget(draft, key);
  const bool is_nested = key.find('.') != std::string::npos;
  const ConfigDocument document{.value = nested(key, std::move(given)), .name = std::string(kCommandLine)};
  Settings over = SettingReader(draft, dialect, document).read();
  if (!is_nested) make_room(draft, key, over);
  for (auto& [name, setting] : over) {
    Setting& before = draft.settings[name];
    if (is_nested && setting.value.is_object() && before.value.is_object()) {
      before.value.update(setting.value);
      setting.value = std::move(before.value);
    }
    before = setting;
  }
}

}  // namespace qtrain
