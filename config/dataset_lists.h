#pragma once
#include "config/translate.h"

namespace qtrain {

/// The lists of data sets of trl (path, data_files, split, ...) and of axolotl (path, type, field_messages, ...).
/// `key` is dataset_name, for training, or eval_dataset_name.
Translation read_datasets(std::string_view key, const Json& list);
/// Reads a source, or a list of sources, of plain texts to train on.
Translation pretraining_datasets(const Json& list);

}  // namespace qtrain
