#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// What may be named instead of `folder`, which is no checkpoint: the newest whole one of those beside it if its name
/// is that of a checkpoint, or in it if it is there, and which ones there are. In words, "" where there are none.
std::string other_checkpoints(const std::filesystem::path& folder);

}  // namespace qtrain
