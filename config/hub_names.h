#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/setting.h"

namespace qtrain {

/// Replaces the names of models, tokenizers and adapters among the settings by their folders in the cache of the hub,
/// if they are there.
std::vector<NamedOnHub> find_models(Draft& draft);

/// The same for the data sets of a config that is otherwise complete.
std::vector<NamedOnHub> find_datasets(Config& config);

/// A text that names rows, under its key.
struct DatasetText {
  std::string key, text;
  std::string revision = {};  ///< that an entry of a list gives
};
using ChangeDataset = std::function<std::string(const DatasetText&)>;
/// Replaces each of them, and removes the revisions of entries.
void change_datasets(Config& config, const ChangeDataset& change);

/// The text of an error about a name that is not in the cache: says where it was looked for.
ErrorText not_found(const NamedOnHub& named);

}  // namespace qtrain
