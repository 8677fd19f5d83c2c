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
/// `key` is dataset_name, for training, or eval_dataset_name.
Translation read_datasets(std::string_view key, const Json& list);
/// Training rows in one, or a list of them, that are plain texts.
Translation pretraining_datasets(const Json& list);

}  // namespace qtrain
