#include "data/source/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

namespace qtrain {
namespace {

[[noreturn]] void bad_entry(std::string cause, std::string remedy = "") {
  fail(ErrorKind::usage, {.cause = std::move(cause), .remedy = std::move(remedy)});
}

std::vector<std::string> strings_at(const Json& entry, const char* key) {
  std::vector<std::string> out;
  const Json value = entry.value(key, Json());
  const bool strings =
      value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); });
  if (value.is_string())
    out.push_back(value.get<std::string>());
  else if (strings)
    for (const Json& v : value) out.push_back(v.get<std::string>());
  else if (!value.is_null())
    bad_entry(std::string("'") + key + "' is neither a string nor a list of strings");
  return out;
}

std::string string_member(const Json& entry, const char* key) {
  const Json value = entry.value(key, Json());
  if (!value.is_null() && !value.is_string()) bad_entry(std::string("'") + key + "' is not a string");
  return value.is_null() ? std::string() : value.get<std::string>();
}

std::optional<double> number_member(const Json& entry, const char* key) {
  const Json value = entry.value(key, Json());
  if (value.is_null()) return std::nullopt;
  if (!value.is_number() || !(value.get<double>() >= 0))
    bad_entry(std::string("'") + key + "' is not a non-negative number");
  return value.get<double>();
}

/// Files as in datasets.load_dataset: `path` may name a format, with the files in data_files.
std::vector<std::string> files_member(const Json& entry) {
  constexpr std::array<std::string_view, 4> kBuilders = {"json", "csv", "parquet", "arrow"};
  const std::string path = string_member(entry, "path"), folder = string_member(entry, "data_dir");
  std::vector<std::string> files = strings_at(entry, "data_files");
  const bool builder =
      std::find(kBuilders.begin(), kBuilders.end(), path) != kBuilders.end() && !(files.empty() && folder.empty());
  std::filesystem::path base = builder ? "" : path;
  if (!folder.empty()) base /= folder;
  if (files.empty()) return {base.string()};
  for (std::string& file : files) file = (base / file).string();
  return files;
}

}  // namespace

DataSource read_data_source(const Json& entry, const ColumnMap& columns) {
  if (entry.is_string())
    return {.files = {entry.get<std::string>()}, .columns = columns, .shared = {.columns = true, .message_keys = true}};
  if (!entry.is_object()) bad_entry("an entry is neither a path nor an object");
  constexpr std::array<std::string_view, 13> kKeys = {
      "path",         "name",     "data_files",     "data_dir",
      "split",        "columns",  "column_mapping", "message_property_mappings",
      "role_mapping", "fraction", "weight",         "share",
      "share_seed"};
  for (const auto& [key, value] : entry.items())
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      bad_entry("unknown key \"" + key + "\"",
                "An entry may have path or data_files, data_dir, name, split, columns, column_mapping, "
                "message_property_mappings, role_mapping, fraction, weight, share, share_seed.");
  DataSource source{.files = files_member(entry),
                    .splits = read_split(string_member(entry, "split")),
                    .columns = columns,
                    .fraction = number_member(entry, "fraction"),
                    .weight = number_member(entry, "weight"),
                    .share = number_member(entry, "share")};
  if (source.share && !(*source.share > 0 && *source.share <= 1))
    bad_entry(fmt::format("share is {}, which is not a share of the rows", *source.share),
              "Give a number above 0 and at most 1.");
  if (const auto seed = number_member(entry, "share_seed")) {
    if (*seed < 0 || *seed != std::floor(*seed) || *seed > 0x1p53) bad_entry("share_seed is not a whole number from 0");
    source.share_seed = static_cast<std::uint64_t>(*seed);
  }
  if (std::string config = string_member(entry, "name"); !config.empty()) source.config = std::move(config);
  if (source.files[0].empty()) bad_entry("neither 'path' nor 'data_files' is given");
  const ColumnMap own = read_column_map(entry);
  const auto gives = [&](const char* key) { return !entry.value(key, Json()).is_null(); };
  source.shared = {.columns = !gives("column_mapping"), .message_keys = !gives("message_property_mappings")};
  if (!source.shared.columns) {
    source.columns.columns = own.columns;
    source.columns.texts = own.texts;
  }
  if (!source.shared.message_keys) source.columns.message_keys = own.message_keys;
  if (gives("role_mapping")) source.columns.roles = own.roles;
  source.columns.keep = strings_at(entry, "columns");
  return source;
}

}  // namespace qtrain
