#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace qtrain {

/// Whether output replaces a file or goes into it.
enum class WriteMode : std::uint8_t {
  replaced,  ///< written under a temporary name and then renamed, replacing what was there
  in_place,  ///< written directly: a device, a FIFO, or an open descriptor behind a path under /proc or /dev
};

/// Where output to a path is written.
struct OutputPlace {
  std::filesystem::path file;  ///< with all links followed; it need not exist
  WriteMode mode = WriteMode::replaced;
};

/// Follows links as opening the path would, so that their target is written and the links stay. Errors
/// (ErrorKind::disk): links that form a circle or may not be followed, a folder, a socket.
OutputPlace output_place(const std::filesystem::path& file);

/// The path with links in its last component followed; it need not exist. Empty if only the kernel can follow them
/// (/proc/self/fd/1). Throws ErrorKind::disk if links form a circle.
std::filesystem::path behind_links(const std::filesystem::path& path);

/// Throws ErrorKind::disk with what failed and the text of `error`, an errno.
[[noreturn]] void fail_write(const std::filesystem::path& file, std::string_view action, int error);

}  // namespace qtrain
