#pragma once
#include <filesystem>
#include <string_view>

namespace qtrain {

/// Appends text to a file, a FIFO or a device, which need not exist. Does not wait until somebody opens a FIFO, and for
/// a reader that is slow only until a stop is requested. Errors: ErrorKind::disk.
void append_text(const std::filesystem::path& file, std::string_view text);

}  // namespace qtrain
