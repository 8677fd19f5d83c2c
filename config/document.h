#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// Limit on values that no real config reaches; each key is looked up in long tables.
inline constexpr std::size_t kMaxConfigValues = 10'000;

/// A config file, or a file that it names, as it was read.
struct ConfigDocument {
  Json value;
  std::map<std::string, int> lines;  ///< line of each key outside lists, by its path: "training.config.rank"
  std::string name;                  ///< name in messages

  /// "config.json:12" for a path; if it has no line of its own, the place of its parent.
  std::string place_of(std::string_view path) const;
};

/// Removes members whose names begin with _, which are comments.
Json without_comments(const Json& value);

/// Parses YAML if the name ends in .yaml or .yml, else JSON with comments. Throws ErrorKind::usage with the line.
ConfigDocument parse_config_document(std::string_view text, std::string_view name);
/// Reads and parses a file. A missing file is ErrorKind::usage, too.
ConfigDocument read_config_document(const std::filesystem::path& file);

/// Throws ErrorKind::usage for a document that is not an object or not a config; the message says what it is and what
/// to do.
void require_config(const ConfigDocument& document);

}  // namespace qtrain
