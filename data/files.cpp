#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <system_error>
#include <utility>

#include "data/reader.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

constexpr std::array<std::string_view, 12> kRead = {".json",       ".jsonl",     ".ndjson",     ".json.gz",
                                                    ".jsonl.gz",   ".ndjson.gz", ".json.zst",   ".jsonl.zst",
                                                    ".ndjson.zst", ".json.zstd", ".jsonl.zstd", ".ndjson.zstd"};
constexpr std::array<std::string_view, 18> kNotRead = {".parquet", ".arrow", ".csv", ".tsv", ".txt",         ".md",
                                                       ".xlsx",    ".pkl",   ".pt",  ".bin", ".npy",         ".zip",
                                                       ".tar",     ".bz2",   ".xz",  ".7z",  ".safetensors", ".gguf"};
/// JSON that the datasets library writes beside its data.
constexpr std::array<std::string_view, 4> kAbout = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                                    "state.json"};

bool ends_with_any(std::string_view name, auto& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return name.ends_with(e); });
}

bool is_data_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return !name.starts_with('.') && ends_with_any(name, kRead) &&
         std::find(kAbout.begin(), kAbout.end(), name) == kAbout.end();
}

Paths children(const fs::path& folder) {
  Paths all;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    all.push_back(it->path());
  if (error) fail(ErrorKind::input, {.cause = "cannot list the folder: " + error.message(), .place = folder.string()});
  std::sort(all.begin(), all.end());
  return all;
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Paths data_files_in(const fs::path& folder) {
  Paths files;
  for (const fs::path& child : children(folder))
    if (is_data_file(child) && !is_folder(child)) files.push_back(child);
  return files;
}

/// The part of a data set that a name speaks of: 't'rain, 'v'alidation, 't'est as 'x', or 0. Words are runs of letters.
char part_of(const fs::path& relative) {
  std::set<std::string> words;
  std::string word;
  for (const char c : relative.string() + ".") {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalpha(letter)) {
      word += static_cast<char>(std::tolower(letter));
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  const auto says = [&](std::initializer_list<const char*> any) {
    return std::any_of(any.begin(), any.end(), [&](const char* w) { return words.contains(w); });
  };
  if (says({"train", "training"})) return 't';
  if (says({"validation", "valid", "val", "dev", "eval", "evaluation"})) return 'v';
  if (says({"test", "testing"})) return 'x';
  return 0;
}

/// Of a folder's files those of the wanted part: train, else unnamed ones; validation, else test, else unnamed ones.
Paths wanted_part(const Paths& files, const fs::path& folder, Split split) {
  const std::array<char, 3> order =
      split == Split::train ? std::array<char, 3>{'t', 0, 0} : std::array<char, 3>{'v', 'x', 0};
  for (const char part : order) {
    Paths chosen;
    for (const fs::path& file : files)
      if (part_of(file.lexically_relative(folder)) == part) chosen.push_back(file);
    if (!chosen.empty()) return chosen;
  }
  return {};
}

Paths from_folder(const fs::path& folder, Split split) {
  Paths files = data_files_in(folder);
  const Paths inside = children(folder);
  const auto is_arrow = [](const fs::path& p) { return p.extension() == ".arrow" || p.extension() == ".parquet"; };
  if (files.empty() && (is_there(folder / "dataset_dict.json") || std::any_of(inside.begin(), inside.end(), is_arrow)))
    fail(ErrorKind::input,
         {.cause = "the folder holds Arrow or Parquet data, which is not read",
          .place = folder.string(),
          .remedy = "Write it as JSON Lines: datasets.load_from_disk(folder).to_json('rows.jsonl')."});
  if (files.empty()) {
    for (const fs::path& child : inside)
      if (is_folder(child)) {
        const Paths below = data_files_in(child);
        files.insert(files.end(), below.begin(), below.end());
      }
  }
  if (files.empty())
    fail(ErrorKind::input, {.cause = "no .json or .jsonl file in the folder",
                            .place = folder.string(),
                            .remedy = "Name a folder with JSON Lines files, or a file."});
  Paths chosen = wanted_part(files, folder, split);
  if (chosen.empty())
    fail(ErrorKind::input, {.cause = "no file of the wanted part of the data in the folder",
                            .place = folder.string(),
                            .remedy = "Name the files themselves."});
  return chosen;
}

bool has_wildcard(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

void folders_below(const fs::path& folder, Paths& out) {
  out.push_back(folder);
  for (const fs::path& child : children(folder))
    if (is_folder(child) && !fs::is_symlink(child)) folders_below(child, out);
}

/// Paths that match a pattern, one component after the other.
Paths expand(const fs::path& pattern) {
  Paths found = {pattern.is_absolute() ? pattern.root_path() : fs::path()};
  for (const fs::path& component : pattern.relative_path()) {
    const std::string part = component.string();
    Paths next;
    for (const fs::path& base : found) {
      const fs::path folder = base.empty() ? fs::path(".") : base;
      if (part == "**") {
        Paths below;
        if (is_folder(folder)) folders_below(folder, below);
        for (const fs::path& f : below) next.push_back(base.empty() ? f.lexically_relative(".") : f);
      } else if (!has_wildcard(part)) {
        if (is_there(base / part)) next.push_back(base / part);
      } else if (is_folder(folder)) {
        for (const fs::path& child : children(folder))
          if (fnmatch(part.c_str(), child.filename().c_str(), FNM_PERIOD) == 0) next.push_back(base / child.filename());
      }
    }
    found = std::move(next);
  }
  std::sort(found.begin(), found.end());
  return found;
}

[[noreturn]] void fail_missing(const std::string& entry) {
  std::error_code error;
  const std::string here = fs::current_path(error).string();
  fail(ErrorKind::input, {.cause = has_wildcard(entry) ? "no file matches" : "no such file or folder",
                          .place = entry,
                          .remedy = "Relative paths start at " + here +
                                    ". Data sets are not downloaded: save one there as JSON Lines first."});
}

Paths files_of_entry(const std::string& entry, Split split) {
  const fs::path path(entry);
  if (is_folder(path)) return from_folder(path, split);
  if (is_there(path)) {
    if (ends_with_any(entry, kNotRead))
      fail(ErrorKind::input, {.cause = "this file format is not read as data",
                              .place = entry,
                              .remedy = "Convert it to JSON Lines: one JSON object per line."});
    return {path};
  }
  Paths files;
  if (has_wildcard(entry))
    for (const fs::path& match : expand(path))
      if (!is_folder(match)) files.push_back(match);
  if (files.empty()) fail_missing(entry);
  return files;
}

}  // namespace

Paths resolve_data_files(const std::vector<std::string>& entries, Split split) {
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
