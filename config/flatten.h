#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/dialect.h"
#include "core/json.h"

namespace qtrain {

/// Where a path of a document is.
using PlaceOf = std::function<std::string(const std::string& path)>;

/// All settings of a document under flat keys: the nesting of manifests and of *_config objects is undone. The judge is
/// told of parts that cannot be honored, and of what only describes.
std::vector<std::pair<std::string, Setting>> flatten(const Dialect& dialect, const Json& document, Judge& judge,
                                                     const PlaceOf& place);

}  // namespace qtrain
