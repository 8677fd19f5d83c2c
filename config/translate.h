#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/dialect_table.h"

namespace qtrain {

/// The result of translating a value: settings of canonical keys, or a problem.
struct Translation {
  std::vector<std::pair<std::string, Json>> settings;
  std::string problem = {};
  std::vector<std::string> remarks = {};
};
Translation translate(const KeyRow& row, const Json& value);

}  // namespace qtrain
