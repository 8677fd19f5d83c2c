#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// All settings of a document under flat keys: the nesting of manifests and of *_config objects is undone. The judge is
/// told of parts that cannot be honored, and of what only describes.
std::vector<std::pair<std::string, Setting>> flatten(const DialectTable& dialect, const ConfigDocument& document,
                                                     Judge& judge);

}  // namespace qtrain
