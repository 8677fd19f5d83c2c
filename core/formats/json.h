#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/error.h"

namespace qtrain {

/// Keys keep the order of the file (tokenizers, `conversations` rows and our own output depend on it).
using Json = nlohmann::ordered_json;

struct JsonRules {
  bool comments = false;               ///< accept // and /* */ (configs)
  bool duplicate_keys = false;         ///< the last one wins; otherwise an error naming the key and its line
  int max_depth = 64;                  ///< deeper nesting is refused before it can exhaust the stack
  std::uint64_t max_bytes = 1u << 30;  ///< larger files are refused
  std::uint64_t max_values = std::uint64_t{1} << 27;  ///< more are refused: each takes 16 bytes and more in memory
  ErrorKind blame = ErrorKind::input;                 ///< the kind of every error thrown
  std::map<std::string, int>* key_lines = nullptr;    ///< receives the line of every key outside lists: "a.b.c" -> 12
};

/// Parses one JSON document. `name` (a file, or "file:line") begins every message; errors give line and column.
/// Trailing commas, NaN, numbers out of range, invalid UTF-8 and text after the document are errors.
Json parse_json(std::string_view text, std::string_view name, const JsonRules& rules = {});

/// The document in a text that may be anything, or null. In objects with a key twice the last one counts.
Json json_in(std::string_view text);

/// Reads and parses a regular file; a missing file, a FIFO or a directory is an error of kind `rules.blame`
/// (a missing path: ErrorKind::input).
Json read_json(const std::filesystem::path& file, const JsonRules& rules = {});

/// Returns what Python's json.dumps(value, ensure_ascii=False) does with separators (", ", ": "), or with `indent` >=
/// 0.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace qtrain
