#pragma once
#include <filesystem>

#include "core/error.h"

namespace qtrain {

/// What a path leads to, links followed. Errors (ErrorKind::input) where the system cannot tell: links that lead in a
/// circle, a name that is too long, a folder that may not be searched.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_plain_file(const std::filesystem::path& path);

/// The path from the root without "." and ".."; links stay. The empty path is the folder that the program runs in.
std::filesystem::path absolute_path(const std::filesystem::path& path);

/// The same with links followed as the system does, as far as the path is there: "link/.." is not the folder of the
/// link.
std::filesystem::path real_path(const std::filesystem::path& path);

/// Makes a folder and those that it is in. Errors: ErrorKind::disk.
void create_folders(const std::filesystem::path& folder);

/// What std::filesystem threw, in the words of the program: an input error, or a disk error where nothing could be
/// written.
Error path_error(const std::filesystem::filesystem_error& error);

}  // namespace qtrain
