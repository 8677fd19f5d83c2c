#pragma once
#include <filesystem>
#include <vector>

#include "app/cli/arguments.h"

namespace qtrain {

/// Makes sure that a command may write its result to a file: nothing is there, or an earlier result of the same
/// command, or a device or FIFO, or --overwrite is given; and it is none of the files that the command reads, nor in a
/// folder among them. Else a usage error.
void require_free_file(const Arguments& args, const std::filesystem::path& file,
                       const std::vector<std::filesystem::path>& inputs = {});

/// Where the result goes when it is there, which may be long after that: the same file, or one beside it where somebody
/// else has made a file of that name meanwhile, which a warning tells.
std::filesystem::path place_now(const Arguments& args, const std::filesystem::path& file);

/// The same of a model folder.
void require_free_folder(const Arguments& args, const std::filesystem::path& folder,
                         const std::vector<std::filesystem::path>& inputs);

}  // namespace qtrain
