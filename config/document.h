#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/formats/json.h"

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
/// Reads and parses a file; a missing one is ErrorKind::usage, too.
ConfigDocument read_config_document(const std::filesystem::path& file);

/// An error (ErrorKind::usage) for a document that is no object, or another kind of file than a config: what it is, and
/// what to do.
void require_config(const ConfigDocument& document);

}  // namespace qtrain
