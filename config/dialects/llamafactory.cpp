#include "config/dialects/llamafactory.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/dialect_table.h"
#include "config/keys.h"

/// LLaMA-Factory: the registry of data sets, and what its values come to together.
namespace qtrain {
namespace {

/// Whether a data set gives a name; an empty one stands for none.
bool names_one(const Json& given, std::string_view key) {
  const auto at = given.find(key);
  return at != given.end() && at->is_string() && *at != "";
}

/// Adds names that a data set gives to those of a part of `registry`, without those that rows may have anyway.
void add_names(Json& names, const Json& given, const char* part) {
  for (const auto& [key, known] : dialect_table("llamafactory").object("registry").at(part).items()) {
    const Json usual = known.is_array() ? known : Json::array({known});  // ours first
    if (names_one(given, key) && std::ranges::find(usual, given.at(key)) == usual.end())
      names[usual[0].get<std::string>()] = given.at(key);
  }
}

/// A data set by its entry in dataset_info.json: its file, or a source of dataset_mixture where its columns have names
/// of their own; none where the entry cannot be read.
std::optional<Json> registered_source(Draft& draft, const std::filesystem::path& registry, const Json& entry,
                                      const std::string& name) {
  if (!entry.is_object() || !entry.contains("file_name") || !entry["file_name"].is_string()) {
    draft.judge.problem(registry.string(), fmt::format("\"{}\": no file_name", name),
                        "data sets are local files: name one");
    return std::nullopt;
  }
  for (const auto& [member, why] : dialect_table("llamafactory").object("registry").at("refused").items())
    if (const auto it = entry.find(member); it != entry.end() && *it != Json(nullptr) && *it != false && *it != "train")
      draft.judge.problem(registry.string(), fmt::format("\"{}\": {} {}", name, member, show(*it)), why);
  const std::string file = (registry.parent_path() / entry["file_name"].get<std::string>()).string();
  const Json columns = entry.value("columns", Json::object()), tags = entry.value("tags", Json::object());
  const bool texts = names_one(columns, "prompt") && !names_one(columns, "response") && !names_one(columns, "messages");
  Json source{{"path", file}};
  add_names(source["column_mapping"], columns, texts ? "texts" : "alpaca");
  add_names(source["column_mapping"], columns, "columns");
  add_names(source["message_property_mappings"], tags, "message");
  add_names(source["role_mapping"], tags, "roles");
  for (const char* map : {"column_mapping", "message_property_mappings", "role_mapping"})
    if (source[map].empty()) source.erase(map);
  if (names_one(columns, "response") && !names_one(columns, "query")) {  // where columns are named, no others count
    source["columns"] = Json::array({"chat_template_kwargs"});
    for (const auto& [ours, theirs] : columns.items())
      if (names_one(columns, ours)) source["columns"].push_back(theirs);
  }
  return source.size() == 1 ? Json(file) : source;
}

/// What is read of a source for evaluation, which has no columns of its own.
Json evaluation_source(Draft& draft, const Setting& names, const Json& source) {
  for (const char* map : {"column_mapping", "message_property_mappings", "role_mapping"})
    if (source.is_object() && source.contains(map)) {
      draft.judge.problem(names.place, "columns of evaluation rows have names of their own", "rename the fields");
      return source;
    }
  if (source.is_string()) return source;
  draft.judge.note(names.place, "of evaluation rows all columns count that the program knows");
  return source.at("path");
}

/// Names of data sets as files.
void settle_datasets(Draft& draft, const char* pending_key, const char* key) {
  const Setting* names = draft.find(pending_key);
  if (!names || !names->value.is_array()) return;
  const bool evaluates = std::string_view(key) != "dataset_name";
  const Setting* dir = draft.find("~dataset_dir");
  const std::string folder = dir && dir->value.is_string() ? dir->value.get<std::string>() : "data";
  Json registry = Json::object();
  const auto file = draft.named_file(folder + "/dataset_info.json");
  if (file) registry = read_config_document(*file).value;
  Json files = Json::array();
  for (const Json& name : names->value) {
    const std::string text = name.is_string() ? name.get<std::string>() : show(name);
    const auto entry = registry.is_object() ? registry.find(text) : registry.end();
    if (!registry.is_object() || entry == registry.end())
      files.push_back(text);
    else if (const auto found = registered_source(draft, *file, *entry, text))
      files.push_back(evaluates ? evaluation_source(draft, *names, *found) : *found);
  }
  const bool mixture = std::any_of(files.begin(), files.end(), [](const Json& source) { return source.is_object(); });
  if (mixture && evaluates) return;
  draft.offer(mixture ? "dataset_mixture" : key, {names->written, names->place, files});
}

}  // namespace

void settle_llamafactory(Draft& draft) {
  settle_datasets(draft, "~dataset", "dataset_name");
  settle_datasets(draft, "~eval_dataset", "eval_dataset_name");
  if (const Setting* rank = draft.find("lora_r"); rank && rank->value.is_number())
    draft.offer("lora_alpha", {fmt::format("2 x {}", rank->written), rank->place, 2 * rank->value.get<double>()});
  const Setting *names = draft.find("~dataset"), *most = draft.find("max_samples");
  if (names && most && names->value.is_array() && names->value.size() > 1)
    draft.note(*most, " counts the rows of all data sets together");
  if (const Setting* stage = draft.find("~stage")) draft.offer("packing", {stage->written, stage->place, true});
}

}  // namespace qtrain
