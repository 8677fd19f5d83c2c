#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace qtrain {

/// How a file is written.
enum class WriteMode : std::uint8_t {
  replaced,  ///< whole, under another name, which then takes the place of what was there
  in_place,  ///< piece by piece: a device, a FIFO, or an open descriptor that a path under /proc or /dev leads to
};

/// Where a path leads to when something is written there.
struct OutputPlace {
  std::filesystem::path file;  ///< behind all links; it need not be there
  WriteMode mode = WriteMode::replaced;
};

/// Follows links as opening the path would: what they lead to is written, and they stay. Errors (ErrorKind::disk):
/// links that lead in a circle or may not be followed, a folder, a socket.
OutputPlace output_place(const std::filesystem::path& file);

/// What a path is once its last name is followed as long as that is a link; it need not be there. Empty where the
/// system alone knows (/proc/self/fd/1). An error (ErrorKind::disk) where links lead in a circle.
std::filesystem::path behind_links(const std::filesystem::path& path);

/// Ends with the error (ErrorKind::disk) that says what failed, with errno.
[[noreturn]] void fail_write(const std::filesystem::path& file, std::string_view action, int error);

}  // namespace qtrain
