#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/dialect.h"
#include "core/json.h"

namespace qtrain {

/// A value somewhere in a config file: the key to read it under, and its path in the file.
struct RawSetting {
  std::string key, path;
  Json value;
  std::string description = {};  ///< why nothing is set by it, of what only describes; empty: it is a setting
};

/// All settings of a document under flat keys: the nesting of manifests and of *_config objects is undone.
/// `problem(path, text)` is told of parts that cannot be honored.
std::vector<RawSetting> flatten(const Dialect& dialect, const Json& document,
                                const std::function<void(const std::string& path, std::string text)>& problem);

}  // namespace qtrain
