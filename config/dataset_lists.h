#pragma once
#include "config/translate.h"

namespace qtrain {

/// The lists of data sets of trl (path, data_files, split, ...) and of axolotl (path, type, field_messages, ...).
/// `key` is dataset_name, for training, or eval_dataset_name.
Translation read_datasets(std::string_view key, const Json& list);
/// Training rows in one, or a list of them, that are plain texts.
Translation pretraining_datasets(const Json& list);

}  // namespace qtrain
