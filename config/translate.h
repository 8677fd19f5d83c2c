#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/dialect_table.h"

namespace qtrain {

/// What a value becomes: settings of our keys, or a problem.
struct Translation {
  std::vector<std::pair<std::string, Json>> settings;
  std::string problem = {};
  std::vector<std::string> remarks = {};
};
Translation translate(const KeyRow& row, const Json& value);

}  // namespace qtrain
