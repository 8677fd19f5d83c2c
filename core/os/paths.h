#pragma once
#include <filesystem>

#include "core/error.h"

namespace qtrain {

/// Check what a path leads to, following links. Errors (ErrorKind::input): links that form a circle, a name that is too
/// long, a folder that may not be searched.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_plain_file(const std::filesystem::path& path);

/// The absolute path without "." and ".."; links are not followed. The empty path means the current folder.
std::filesystem::path absolute_path(const std::filesystem::path& path);

/// The same with links followed as the system does, as far as the path exists: "link/.." is the parent of the link's
/// target.
std::filesystem::path real_path(const std::filesystem::path& path);

/// Creates a folder and its missing parents. Errors: ErrorKind::disk.
void create_folders(const std::filesystem::path& folder);

/// Converts an exception of std::filesystem to an input error, or to a disk error if writing failed.
Error path_error(const std::filesystem::filesystem_error& error);

}  // namespace qtrain
