#pragma once
#include <filesystem>
#include <vector>

#include "app/cli/arguments.h"

namespace qtrain {

/// Checks that a command may write its result to a file: there is no such file, it is an earlier result of the same
/// command, it is a device or FIFO, or --overwrite is given. It also must not be one of `inputs`, nor lie in a folder
/// among them. Throws ErrorKind::usage otherwise.
void require_free_file(const Arguments& args, const std::filesystem::path& file,
                       const std::vector<std::filesystem::path>& inputs = {});

/// The file to write a result to when it is ready, perhaps long after require_free_file: the same file, or one next to
/// it if another program has created the file in the meantime, with a warning.
std::filesystem::path place_now(const Arguments& args, const std::filesystem::path& file);

/// The same for a model folder.
void require_free_folder(const Arguments& args, const std::filesystem::path& folder,
                         const std::vector<std::filesystem::path>& inputs);

}  // namespace qtrain
