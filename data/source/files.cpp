#include "data/source/files.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/utf8.h"
#include "data/source/globs.h"
#include "data/source/row_source.h"
#include "data/source/split_choice.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

/// Extensions of data files by format; text formats may also end in .gz, .zst or .zstd.
struct DataFormat {
  std::string_view name;
  std::array<std::string_view, 3> endings;
  bool is_text;
};
constexpr std::array<DataFormat, 4> kFormats = {{{"json", {".json", ".jsonl", ".ndjson"}, true},
                                                 {"csv", {".csv", ".tsv"}, true},
                                                 {"parquet", {".parquet"}, false},
                                                 {"arrow", {".arrow", ".feather", ".ipc"}, false}}};
constexpr std::array<std::string_view, 3> kPacked = {".gz", ".zst", ".zstd"};
constexpr std::array<std::string_view, 13> kNotRead = {".md",  ".xlsx", ".pkl", ".pt", ".bin",         ".npy", ".zip",
                                                       ".tar", ".bz2",  ".xz",  ".7z", ".safetensors", ".gguf"};
/// JSON files that the datasets library writes next to its data.
constexpr std::array<std::string_view, 4> kAbout = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                                    "state.json"};

bool ends_with_any(std::string_view name, auto& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

const DataFormat* format_of_name(std::string_view name) {
  std::string_view plain = name;
  for (const std::string_view packed : kPacked)
    if (name.ends_with(packed)) plain = name.substr(0, name.size() - packed.size());
  for (const DataFormat& format : kFormats)
    for (const std::string_view ending : format.endings)
      if (!ending.empty() && (format.is_text ? plain : name).ends_with(ending)) return &format;
  return nullptr;
}

Paths data_files_in(const fs::path& folder) {
  Paths files;
  for (const fs::path& child : children_of(folder))
    if (is_data_file(child) && !leads_to_folder(child)) files.push_back(child);
  return files;
}

/// Plain text files in a folder; they count only without other data, since notes and licenses have this extension too.
Paths text_files_in(const fs::path& folder) {
  Paths files;
  for (const fs::path& child : children_of(folder))
    if (is_text_file(child) && !child.filename().string().starts_with('.') && !leads_to_folder(child))
      files.push_back(child);
  return files;
}

/// Selects the files of the most frequent format, because a folder may contain the same rows in several formats.
Paths of_one_format(const Paths& files) {
  std::map<const DataFormat*, Paths> by_format;
  for (const fs::path& file : files) by_format[format_of_name(file.filename().string())].push_back(file);
  const auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  return files.empty() ? files : std::max_element(by_format.begin(), by_format.end(), fewer)->second;
}

/// Reads an object written by the datasets library.
Json saved_object(const fs::path& file) {
  Json json = read_json(file, {.max_bytes = 1u << 26});
  if (!json.is_object()) fail(ErrorKind::input, {.cause = "it is not a JSON object", .place = file.string()});
  return json;
}

/// Whether a value is a plain file name rather than a path.
bool is_plain_name(const Json& value) {
  if (!value.is_string()) return false;
  const fs::path name = value.get<std::string>();
  return !name.empty() && name.filename() == name && name != "." && name != "..";
}

/// The files of a folder written by Dataset.save_to_disk, in its order.
Paths from_saved(const fs::path& folder) {
  const fs::path state = folder / "state.json";
  const Json json = saved_object(state);
  Paths files;
  for (const Json& file : json.value("_data_files", Json::array())) {
    if (!file.is_object() || !is_plain_name(file.value("filename", Json())))
      fail(ErrorKind::input, {.cause = "_data_files does not name files in the folder", .place = state.string()});
    files.push_back(folder / file["filename"].get<std::string>());
  }
  return files;
}

/// The files of one split in a folder written by DatasetDict.save_to_disk.
Paths from_saved_dict(const fs::path& folder, const WantedSplit& split) {
  const fs::path file = folder / "dataset_dict.json";
  const Json json = saved_object(file);
  Paths names, files;
  for (const Json& name : json.value("splits", Json::array())) {
    if (!is_plain_name(name))
      fail(ErrorKind::input, {.cause = "'splits' does not name folders next to it", .place = file.string()});
    names.emplace_back(name.get<std::string>());
  }
  for (const fs::path& name : choose_split(folder, names, split)) {
    const Paths saved = from_saved(folder / name);
    files.insert(files.end(), saved.begin(), saved.end());
  }
  return files;
}

Paths from_folder(const fs::path& folder, const WantedSplit& split) {
  if (is_there(folder / "dataset_dict.json")) return from_saved_dict(folder, split);
  if (is_saved_folder(folder)) return from_saved(folder);
  Paths files = of_one_format(data_files_in(folder));
  if (files.empty()) {
    for (const fs::path& child : children_of(folder))
      if (leads_to_folder(child)) {
        const Paths below = data_files_in(child);
        files.insert(files.end(), below.begin(), below.end());
      }
    files = of_one_format(files);
  }
  if (files.empty()) files = text_files_in(folder);
  if (files.empty())
    fail(ErrorKind::input, {.cause = "no JSON, JSONL, CSV, Parquet, Arrow or text file in the folder",
                            .place = folder.string(),
                            .remedy = "Name a folder with data files, or a file."});
  Paths names;
  for (const fs::path& file : files) names.push_back(file.lexically_relative(folder));
  Paths chosen;
  for (const fs::path& name : choose_split(folder, names, split)) chosen.push_back(folder / name);
  return chosen;
}

/// Reading other files instead would train on another config.
[[noreturn]] void fail_unmatched(const fs::path& folder, const std::string& patterns) {
  const bool in_cache = std::ranges::find(folder, fs::path("snapshots")) != folder.end();
  fail(ErrorKind::input,
       {.cause = "no file is there that README.md lists for this config and split: " + patterns,
        .place = folder.string(),
        .remedy = in_cache ? "add --fetch to fetch the files of this config, or set another dataset_config"
                           : "check README.md, or set another dataset_config"});
}

/// The patterns that a card lists for a split, each once.
std::vector<std::string> patterns_of(const fs::path& folder, const CardFiles& card, const WantedSplit& split) {
  Paths names;
  std::set<fs::path> seen_names;
  for (const CardSplit& listed : card.splits)
    if (seen_names.insert(listed.name).second) names.emplace_back(listed.name);
  const Paths chosen = choose_split(folder, names, split);
  const std::set<fs::path> wanted(chosen.begin(), chosen.end());
  std::vector<std::string> patterns;
  std::set<std::string> seen;
  for (const CardSplit& listed : card.splits)
    if (wanted.contains(listed.name))
      for (const std::string& pattern : listed.files)
        if (seen.insert(pattern).second) patterns.push_back(pattern);
  return patterns;
}

/// The first patterns, and how many more there are.
std::string listed_patterns(const std::vector<std::string>& patterns) {
  constexpr std::size_t kShown = 12, kMaxLength = 100;
  std::string text;
  for (std::size_t i = 0; i < std::min(patterns.size(), kShown); ++i)
    text +=
        (i == 0 ? "" : ", ") + (patterns[i].size() <= kMaxLength ? one_line(patterns[i])
                                                                 : one_line(patterns[i].substr(0, kMaxLength)) + "...");
  return patterns.size() <= kShown ? text : text + ", and " + std::to_string(patterns.size() - kShown) + " more";
}

/// The files of one split in a folder whose card lists the splits. None if there are none: a card may be outdated.
Paths from_card(const fs::path& folder, const CardFiles& card, const WantedSplit& split) {
  constexpr std::int64_t kMaxNames = 20'000'000;  // a hundred patterns may look at all files of a repository
  Globs globs(kMaxNames);
  Paths files;
  std::set<fs::path> seen;
  const std::vector<std::string> patterns = patterns_of(folder, card, split);
  for (const std::string& pattern : patterns)
    for (const fs::path& match : globs.expand(folder / pattern)) {
      if (!seen.insert(match).second) continue;
      const Paths found = leads_to_folder(match) ? data_files_in(match) : Paths{match};
      std::ranges::copy_if(found, std::back_inserter(files),
                           [](const fs::path& file) { return is_data_file(file) || is_text_file(file); });
    }
  if (files.empty() && card.only) fail_unmatched(folder, listed_patterns(patterns));
  return files;
}

[[noreturn]] void fail_missing(const std::string& entry) {
  std::error_code error;
  const bool unknown = fs::status(entry, error).type() == fs::file_type::none && !has_wildcard(entry);
  if (unknown) fail(ErrorKind::input, {.cause = "cannot be read: " + error.message(), .place = entry});
  const std::string here = fs::current_path(error).string();
  fail(ErrorKind::input,
       {.cause = has_wildcard(entry) ? "no file matches" : "no such file or folder",
        .place = entry,
        .remedy = "Relative paths start from " + here + ". A data set of the hub is named OWNER/NAME."});
}

Paths files_of_entry(const std::string& entry, const WantedSplit& split) {
  const fs::path path(entry);
  if (const auto card = split.cards.find(entry); card != split.cards.end() && leads_to_folder(path))
    if (Paths files = from_card(path, card->second, split); !files.empty()) return files;
  if (leads_to_folder(path)) return from_folder(path, split);
  if (is_there(path)) {
    if (ends_with_any(entry, kNotRead))
      fail(ErrorKind::input,
           {.cause = "this file format is not supported as data",
            .place = entry,
            .remedy =
                entry.ends_with(".xlsx") ? "Save it as CSV." : "Convert it to JSON Lines: one JSON object per line."});
    return {path};
  }
  Paths files;
  if (has_wildcard(entry))
    for (const fs::path& match : Globs().expand(path))
      if (!leads_to_folder(match)) files.push_back(match);
  if (files.empty()) fail_missing(entry);
  return files;
}

}  // namespace

bool is_data_file(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool of_cache = name.starts_with("cache-") && name.ends_with(".arrow");  // left by datasets.map
  return !name.starts_with('.') && !of_cache && format_of_name(name) != nullptr &&
         std::find(kAbout.begin(), kAbout.end(), name) == kAbout.end();
}

bool is_saved_folder(const fs::path& folder) {
  return is_there(folder / "state.json") && is_there(folder / "dataset_info.json");
}

Paths resolve_data_files(const std::vector<std::string>& entries, const WantedSplit& split) {
  if (entries.empty())
    fail(ErrorKind::usage, {.cause = "no data file given", .remedy = "Set dataset_name to a file, glob or folder."});
  Paths files;
  std::set<fs::path> seen;
  for (const std::string& entry : entries)
    for (const fs::path& file : files_of_entry(entry, split)) {
      std::error_code error;
      const fs::path same = fs::weakly_canonical(file, error);
      if (seen.insert(error ? file : same).second) files.push_back(file);
    }
  return files;
}

}  // namespace qtrain
