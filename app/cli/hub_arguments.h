#pragma once
#include <filesystem>

#include "app/cli/arguments.h"

namespace qtrain {

/// Replaces names of the hub among the values of a command (models, adapters) by their paths in the cache. Paths stay.
/// Throws ErrorKind::input for a name that is not there.
void place_names(Arguments& arguments);

/// The config of a command that reads what it names. Throws as load_config does, and ErrorKind::input for a name of the
/// hub that is not there.
ResolvedConfig load_run_config(const Arguments& arguments, const std::filesystem::path& file);

}  // namespace qtrain
