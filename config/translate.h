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

/// The lists of data sets of trl (path, data_files, split, ...) and of axolotl (path, type, field_messages, ...).
Translation training_datasets(const Json& list);
/// One, or a list of them, whose rows are plain texts.
Translation pretraining_datasets(const Json& list);
Translation evaluation_datasets(const Json& list);

}  // namespace qtrain
