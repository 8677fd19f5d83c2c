#include "config/dataset_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "config/dialect_table.h"
#include "config/keys.h"
#include "data/source/files.h"
#include "data/source/split_slice.h"
#include "hub/name.h"

/// Translates lists of data sets of trl and axolotl into files.
namespace qtrain {
namespace {

const DialectTable& dataset_table() {
  return dialect_table("datasets");
}

std::string text_in(const Json& object, std::string_view member, std::string_view otherwise = {}) {
  const auto at = object.find(member);
  return at != object.end() && at->is_string() && *at != "" ? at->get<std::string>() : std::string(otherwise);
}

/// A type of axolotl without its variant: "alpaca" for "alpaca.load_open_orca".
std::string base_of(const Json& type) {
  const std::string name = type.is_string() ? type.get<std::string>() : "";
  return name.substr(0, name.find_first_of(".:"));
}
bool is_texts(const Json& type) {
  return base_of(type) == "completion" || base_of(type) == "pretrain";
}

bool gives(const Json& type, const std::string& member) {
  const Json value = type.value(member, Json());
  return !value.is_null() && value != "";
}

std::vector<std::string> strings_in(const Json& v) {
  std::vector<std::string> out;
  if (v.is_string()) out.push_back(v.get<std::string>());
  if (v.is_array())
    for (const Json& item : v)
      if (item.is_string()) out.push_back(item.get<std::string>());
  return out;
}

/// The data files of an entry; if they are given by split, those of its splits, or of the training split.
std::vector<std::string> data_files_of(const Json& entry) {
  const Json given = entry.value("data_files", Json());
  if (!given.is_object()) return strings_in(given);
  std::vector<std::string> files;
  for (const SplitSlice& slice : read_split(text_in(entry, "split", "train")))
    for (std::string& file : strings_in(given.value(slice.name, Json()))) files.push_back(std::move(file));
  return files;
}

/// The files of an entry: its path; of a builder such as json its data_files; else those in the folder `path`.
std::vector<std::string> files_of(const Json& entry) {
  const std::string path = text_in(entry, "path"), data_dir = text_in(entry, "data_dir");
  const std::string folder = !data_dir.empty() ? data_dir : dataset_table().lists("builders", path) ? "" : path;
  std::vector<std::string> files = data_files_of(entry);
  if (files.empty()) return {folder};
  const bool in_folder = !folder.empty() && folder != files[0];
  for (std::string& file : files)
    if (in_folder && !file.starts_with('/') && !file.starts_with(folder)) file = folder + "/" + file;
  return files;
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}
std::string escaped(const std::string& text) {
  return replaced(replaced(text, "{", "{{"), "}", "}}");
}
/// Columns of rows, by the names of the fields in a text.
using FieldColumns = std::map<std::string, std::string, std::less<>>;
/// Replaces the fields of a text by columns, all at once, since a column may have the name of another field. {{ and }}
/// are escapes.
std::string with_fields(std::string_view text, const FieldColumns& columns) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const bool brace = rest.starts_with("{{") || rest.starts_with("}}");
    const std::size_t end = !brace && rest[0] == '{' ? rest.find('}') : rest.npos;
    const auto column = end == rest.npos ? columns.end() : columns.find(rest.substr(1, end - 1));
    const std::size_t taken = brace ? 2 : column != columns.end() ? end + 1 : 1;
    out += column != columns.end() ? fmt::format("{{{}}}", column->second) : std::string(rest.substr(0, taken));
    at += taken;
  }
  return out;
}

/// Columns of a source as a `type` of axolotl defines them: the prompt is system_format if there is a system prompt (in
/// the row, or system_prompt), then format, or no_input_format if the row has no input.
Json prompt_columns(const Json& type) {
  const FieldColumns columns{{"instruction", text_in(type, "field_instruction", "instruction")},
                             {"input", text_in(type, "field_input", "input")}};
  const std::string system = text_in(type, "system_format", "{system}"), column = text_in(type, "field_system"),
                    words = text_in(type, "system_prompt");
  const std::string before = column.empty() && !words.empty() ? replaced(system, "{system}", escaped(words)) : "";
  Json with_system = Json::array(), texts = Json::array();
  for (const char* member : {"format", "no_input_format"}) {
    const std::string turn = with_fields(text_in(type, member), columns);
    if (turn.empty()) continue;
    if (!column.empty()) with_system.push_back(with_fields(system, {{"system", column}}) + turn);
    texts.push_back(before + turn);
  }
  with_system.insert(with_system.end(), texts.begin(), texts.end());
  return {{"prompt", with_system}, {"completion", text_in(type, "field_output", "output")}};
}

/// Renames the members of an entry in the style of alignment-handbook or open-r1 to those of other entries.
Json with_path(const Json& entry) {
  Json out = Json::object();
  for (const auto& [member, value] : entry.items())
    out[dataset_table().object("beside_id").value(member, member)] = value;
  return out;
}

/// Reads one list into a key for files, or into dataset_mixture if training rows have more options.
struct DatasetList {
  std::string_view key;
  bool trains = false;
  bool texts_only = true;        ///< whether all entries are plain texts
  bool some_texts = false;       ///< whether some entries are
  bool formatted_rows = false;   ///< whether some entries define their own prompt format
  bool conversations = false;    ///< whether some entries are neither
  Json formats = Json::array();  ///< chat templates of the conversation entries, null if one names none
  Json files = Json::array();
  Json sources = Json::array();  ///< the same for dataset_mixture
  bool is_mixture = false;
  Json prompts = Json::array();  ///< the same, with rows of type alpaca in their own format
  bool has_alpaca = false;
  /// For evaluation rows: the split of a source, or null, and whether it names files, for which only a part of a split
  /// counts.
  struct NamedSplit {
    Json split;
    bool is_files;
  };
  std::vector<NamedSplit> splits = {};
  Translation out = {};

  void read(const Json& list) {
    if (!list.is_array()) return problem(fmt::format("expected a list of data sets, got {}", show(list)));
    for (const Json& entry : list) {
      if (entry.is_string())
        read_path(entry);
      else if (entry.is_object())
        read_entry(entry);
      else
        problem(fmt::format("expected a data set, got {}", show(entry)));
    }
    if (trains) add_config();
    out.settings.emplace_back(is_mixture ? "dataset_mixture" : std::string(key), is_mixture ? sources : files);
    if (conversations && (formatted_rows || some_texts)) out.settings.emplace_back("learn_plain_texts", true);
    if (has_alpaca) out.settings.emplace_back("~alpaca_prompts", prompts);
    add_format();
    add_split();
    if (formatted_rows && texts_only) out.settings.emplace_back("assistant_only_loss", false);
    if (texts_only && !formatted_rows && !files.empty())
      out.settings.insert(out.settings.end(), {{"assistant_only_loss", false}, {"completion_only_loss", false}});
  }

  void read_path(const Json& path) {
    for (Json* list : {&files, &sources, &prompts}) list->push_back(path);
    texts_only = false;
    conversations = true;
    splits.push_back({nullptr, is_data_file(path.get_ref<const std::string&>())});
  }

  /// Evaluation rows have one split, which has no effect on files unless it selects a part of them.
  void add_split() {
    if (trains) return;
    const auto has_part = [](const Json& split) {
      return split.is_string() && show(split).find('[') != std::string::npos;
    };
    const bool any_part = std::ranges::any_of(splits, has_part, &NamedSplit::split);
    std::vector<Json> wanted;
    for (const auto& [split, is_files] : splits)
      if ((any_part || !is_files) && std::ranges::find(wanted, split) == wanted.end()) wanted.push_back(split);
    if (wanted.size() > 1) {
      std::vector<std::string> shown;
      for (const Json& split : wanted) shown.push_back(split.is_null() ? "none" : show(split));
      return problem(
          fmt::format("evaluation rows have one split (dataset_test_split), but these sources have several: {}; give "
                      "all the same one, or name files instead of folders, without parts",
                      fmt::join(shown, ", ")));
    }
    if (wanted.empty())  // only files: the split has no effect but is shown
      for (const NamedSplit& named : splits)
        if (wanted.empty() && !named.split.is_null()) wanted.push_back(named.split);
    if (!wanted.empty() && !wanted[0].is_null()) out.settings.emplace_back("dataset_test_split", wanted[0]);
  }

  static bool is_of_repo(std::string_view member) { return member == "name" || member == "revision"; }
  /// Whether a source can have configs: a folder, or a data set of the hub.
  static bool has_configs(const Json& source) {
    std::error_code ignored;
    const std::string file = source.at("data_files").empty() ? "" : source["data_files"][0].get<std::string>();
    const auto name = hub_name_unless_path(RepoKind::dataset, file);
    return (name && name->has_owner()) || std::filesystem::is_directory(file, ignored);
  }

  /// A config that all entries name, or none does, becomes that of the run; else each entry keeps its own.
  void add_config() {
    const auto config_of = [](const Json& source) {
      return source.is_object() ? source.value("name", Json()) : Json();
    };
    if (is_mixture || sources.empty()) return;
    const Json config = config_of(sources[0]);
    is_mixture = !std::ranges::all_of(sources, [&](const Json& source) { return config_of(source) == config; });
    if (!is_mixture && !config.is_null()) out.settings.emplace_back("dataset_config", config);
  }

  /// A chat template that all entries name becomes that of the run.
  void add_format() {
    const auto named = std::find_if(formats.begin(), formats.end(), [](const Json& f) { return !f.is_null(); });
    if (named == formats.end()) return;
    if (std::any_of(formats.begin(), formats.end(), [&](const Json& other) { return other != *named; }))
      return problem(
          fmt::format("chat_template {} is not that of all entries: a run has one chat template; set it next to "
                      "datasets, not in them",
                      show("chat_template", *named)));
    const Translation made = translate(*dialect_table("axolotl").find("chat_template"), *named);
    out.settings.insert(out.settings.end(), made.settings.begin(), made.settings.end());
    out.remarks.insert(out.remarks.end(), made.remarks.begin(), made.remarks.end());
  }

  void read_entry(const Json& entry) {
    if (entry.contains("id")) return read_entry(with_path(entry));
    std::vector<std::string> named;
    try {
      named = files_of(entry);
    } catch (const Error& e) {  // about its split
      return problem(e.text().cause);
    }
    if (named[0].empty()) problem(fmt::format("{} names no files", show(entry)));
    splits.push_back({entry.value("split", Json()), std::ranges::all_of(named, is_data_file)});
    for (const std::string& file : named) files.push_back(file);
    Json source{{"data_files", named}};
    for (const auto& [member, value] : entry.items()) read_member(source, member, value);
    if (entry.value("data_files", Json()).is_object()) drop_sum(source);
    const Json type = entry.value("type", Json());
    const bool formatted = type.is_object() && (gives(type, "format") || gives(type, "no_input_format"));
    if (!type.is_object())
      read_type(type);
    else if (formatted)  // it names the fields for instruction, input and output, and how they become a text
      read_format(source, type);
    else
      read_names(source, type);
    if (!formatted && !is_texts(type)) formats.push_back(entry.value("chat_template", Json()));
    prompts.push_back(source);
    if (trains && type == "alpaca" && !source.contains("column_mapping")) {
      prompts.back()["column_mapping"] = dataset_table().object("alpaca");
      has_alpaca = true;
    }
    sources.push_back(std::move(source));
  }

  /// If files are listed by split, several splits simply mean all of those files.
  void drop_sum(Json& source) {
    const std::string split = text_in(source, "split");
    if (split.find('+') == split.npos) return;
    if (split.find('[') != split.npos)
      return problem(fmt::format("data_files with parts of several splits, {}: give each part its own entry", split));
    source.erase("split");
  }

  /// Rows that become prompt and answer texts without a chat template.
  void read_format(Json& source, const Json& type) {
    for (const auto& [member, value] : type.items()) {
      if (!dataset_table().lists("prompt_members", member))
        return problem(fmt::format("unknown member \"type.{}\"", member));
      if (!value.is_null() && !value.is_string()) return problem(fmt::format("type.{} is not a string", member));
    }
    if (!trains) return problem("type.format of evaluation rows is not available: hold rows out with val_set_size");
    source["column_mapping"] = prompt_columns(type);
    is_mixture = formatted_rows = true;
  }

  void read_names(Json& source, const Json& type) {
    texts_only = false;
    conversations = true;
    for (const auto& [member, value] : type.items()) {
      if (!gives(type, member)) continue;
      const std::string field = member.starts_with("field_") ? member.substr(6) : "";
      if (!dataset_table().lists("instruction_fields", field))
        problem(
            fmt::format("type.{} {} cannot be honored: rows are rendered with the chat template; keep prompt and "
                        "completion in the rows",
                        member, show(member, value)));
      else if (value != field && !trains)
        problem(fmt::format("type.{} {} cannot be honored: rename the field in the rows", member, show(member, value)));
      else if (value != field)
        source["column_mapping"][field] = value, is_mixture = true;
    }
    out.remarks.push_back("type: rows of instruction, input and output are rendered with the chat template");
  }

  /// A member that sources of dataset_mixture have, or one that the data set table describes.
  void read_member(Json& source, const std::string& member, const Json& value) {
    if (dataset_table().lists("read_together", member) || dataset_table().object("common").contains(member)) return;
    if (member == "split" && !trains) return;  // all sources have one: `add_split`
    if (member == "field") {
      if (value.is_string()) out.settings.emplace_back("dataset_text_field", value);
      return;
    }
    const KeyRow* known = dataset_table().find(member);
    if (known == nullptr) return problem(fmt::format("unknown member \"{}\"", member));
    if (known->is_neutral(value)) {
      if (trains && member == "fraction" && !value.is_null()) source[member] = value;  // because other sources have one
      if (trains && member == "name" && value == "main" && has_configs(source)) source[member] = value;
    } else if (const Json target = dataset_table().object("source").value(member, Json());
               trains && !target.is_null() && (!is_of_repo(member) || has_configs(source))) {
      set_in_source(source, target.get_ref<const std::string&>(), value);
    } else if (known->status == KeyStatus::unsupported) {
      problem(fmt::format("{} {} cannot be honored: {}", member, show(member, value), known->reason));
    } else {
      out.remarks.push_back(fmt::format("{} {} has no effect: {}", member, show(member, value), known->reason));
    }
  }

  /// `target` is a member of a source, or, with a slash, a member of an object in it.
  void set_in_source(Json& source, const std::string& target, const Json& value) {
    const Json::json_pointer place("/" + target), object = place.parent_pointer();
    if (source.contains(object) && !source[object].is_object())
      return problem(fmt::format("{} is not an object", object.back()));
    source[place] = value;
    is_mixture = true;
  }

  void read_type(const Json& type) {
    const std::string base = base_of(type);
    texts_only = texts_only && is_texts(type);
    (is_texts(type) ? some_texts : conversations) = true;
    if (base == "alpaca")
      out.remarks.push_back(
          "type alpaca: rows are rendered with the chat template, if the model has one; chat_template_path=alpaca uses "
          "### Instruction");
    if (!type.is_null() && !dataset_table().lists("row_types", base))
      problem(fmt::format("type {} is not available: rows are recognized by their fields (types {})", show(type),
                          fmt::join(dataset_table().list("row_types"), ", ")));
  }

  void problem(std::string text) { out.problem += (out.problem.empty() ? "" : "; ") + std::move(text); }
};

}  // namespace

Translation read_datasets(std::string_view key, const Json& v) {
  if (v.is_null()) return {};
  DatasetList list{.key = key, .trains = key == "dataset_name"};
  list.read(v);
  return std::move(list.out);
}

Translation pretraining_datasets(const Json& v) {
  Json list = v.is_string() || v.is_object() ? Json::array({v}) : v;
  if (list.is_array())
    for (Json& entry : list) {
      if (entry.is_string()) entry = {{"path", entry}};
      if (entry.is_object() && entry.value("type", Json()).is_null()) entry["type"] = "pretrain";
    }
  return read_datasets("dataset_name", list);
}

}  // namespace qtrain
