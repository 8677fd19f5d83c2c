#pragma once
#include "config/translate.h"

namespace qtrain {

/// The lists of data sets of trl (path, data_files, split, ...) and of axolotl (path, type, field_messages, ...).
Translation training_datasets(const Json& list);
/// One, or a list of them, whose rows are plain texts.
Translation pretraining_datasets(const Json& list);
Translation evaluation_datasets(const Json& list);

}  // namespace qtrain
