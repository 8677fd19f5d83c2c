#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/json.h"

namespace qtrain {

/// What no config comes near; each key is looked up in long tables.
inline constexpr std::size_t kMaxConfigValues = 10'000;

/// A config file, or one that it names, as it was read.
struct ConfigDocument {
  Json value;
  std::map<std::string, int> lines;  ///< of each key outside lists, by its path: "training.config.rank"
  std::string name;                  ///< what messages call it

  /// "config.json:12" for a path; for one without a line the place of what it is in.
  std::string place_of(std::string_view path) const;
};

/// The value without the members whose names begin with _, which are comments.
Json without_comments(const Json& value);

/// Parses YAML where the name ends in .yaml or .yml, else JSON with comments. Errors: ErrorKind::usage with the line.
ConfigDocument parse_config_document(std::string_view text, std::string_view name);
/// One YAML document as JSON, by the rules of YAML 1.1 as PyYAML has them (yes and no are booleans, << merges), but
/// that 2e-4 is a number, a key given twice is an error, and tags other than those of plain values are refused.
ConfigDocument parse_yaml(std::string_view text, std::string_view name);
/// The value of a scalar without quotes: true, 12, 1e-4, or the text itself. Empty and null are not asked for.
Json yaml_plain_value(std::string_view text);
/// Reads and parses a file; a missing one is ErrorKind::usage, too.
ConfigDocument read_config_document(const std::filesystem::path& file);

}  // namespace qtrain
