#pragma once
#include <filesystem>

#include "app/cli/arguments.h"
#include "train/setup/hub_files.h"

namespace qtrain {

/// Replaces names of the hub among the values of a command (models, adapters) by their paths in the cache, after
/// fetching what is missing. Paths stay. Throws as HubFetcher does.
void place_names(Arguments& arguments);

/// The config of a command that reads what it names, after fetching what is missing. Throws as load_config and
/// fetch_named do.
ResolvedConfig load_run_config(const Arguments& arguments, const std::filesystem::path& file,
                               const NeededOfConfig& needed = {});

}  // namespace qtrain
