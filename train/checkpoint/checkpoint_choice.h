#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// Message that suggests what to name instead of `folder`, which is not a checkpoint: the newest intact checkpoint, and
/// a list of all, in the folder if it exists, or next to it if it has the name of a checkpoint. "" if there are none.
std::string other_checkpoints(const std::filesystem::path& folder);

}  // namespace qtrain
