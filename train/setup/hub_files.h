#pragma once
#include "config/config.h"
#include "hub/fetch.h"

namespace qtrain {

/// What a command reads of what a config names.
struct NeededOfConfig {
  ModelFiles model = ModelFiles::all;  ///< of the model and the adapter; the tokenizer's files are always needed
  bool rows = true;
};

/// Fetches what a config names on the hub and the cache lacks: models, and those files of data sets that its splits and
/// configs select. The config is to be loaded again afterwards. Errors: as HubFetcher, and as data_files.
void fetch_named(HubFetcher& fetcher, const ResolvedConfig& config, const NeededOfConfig& needed);

}  // namespace qtrain
