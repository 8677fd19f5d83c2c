#pragma once
#include <filesystem>
#include <string_view>

namespace qtrain {

/// Appends text to a file, FIFO or device, and creates a file that does not exist. Fails at once if nobody has opened
/// the FIFO for reading, and waits for a slow reader only until a stop is requested. If the disk becomes full, a file
/// keeps no part of the text, unless another program appends to it at the same time. Throws ErrorKind::disk.
void append_text(const std::filesystem::path& file, std::string_view text);

}  // namespace qtrain
