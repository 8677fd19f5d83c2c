#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/os/descriptor.h"

namespace qtrain {

/// A regular file mapped read-only for as long as the object lives.
class MappedFile {
 public:
  MappedFile() = default;
  /// Errors (ErrorKind::input): missing, not a regular file (links to one are fine), unreadable.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  /// Releases the memory behind a part that has been read; reading it again reads the file again. Ignores bytes that
  /// are not in this file.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

/// Reads a whole regular file of at most max_bytes.
std::string read_text(const std::filesystem::path& file, std::uint64_t max_bytes = std::uint64_t{1} << 32);

/// Whether text that is appended to the file begins a line: there is no such file, it is empty or not a regular file,
/// or it ends in a line end.
bool appending_begins_line(const std::filesystem::path& file);

/// Whether a file is the pointer that git leaves in place of a large file that git-lfs has not fetched.
bool is_lfs_pointer(std::string_view contents);
/// Throws the input error for such a file.
[[noreturn]] void fail_lfs_pointer(const std::filesystem::path& file);

/// Hands out the contents of a file in chunks; only one of them is in memory at a time.
void for_each_chunk(const std::filesystem::path& file, const std::function<void(std::span<const std::byte>)>& take);

/// Writes `file` under a temporary name in the same folder, then fsyncs and renames it, so that it is complete or
/// absent. Errors (ErrorKind::disk) name the file and errno.
void write_file(const std::filesystem::path& file, std::string_view contents);
/// The same for the result of a command: a stop leaves nothing behind until the file is renamed, and is ignored from
/// then on (finish_or_stop).
void write_result(const std::filesystem::path& file, std::string_view contents);
/// The same with contents that are produced in pieces: `produce` gets a function that appends bytes.
void write_file(const std::filesystem::path& file,
                const std::function<void(const std::function<void(std::span<const std::byte>)>& append)>& produce);
void write_result(const std::filesystem::path& file,
                  const std::function<void(const std::function<void(std::span<const std::byte>)>& append)>& produce);

/// A file that several processes write together, each its own bytes. It is incomplete until all are done, so it belongs
/// in a folder that is renamed only then. Errors: ErrorKind::disk.
class SharedFile {
 public:
  /// Creates the file with `size` bytes; without a size, opens the one that another process has created.
  SharedFile(const std::filesystem::path& file, std::optional<std::uint64_t> size);
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Closes the file; from then on, everything that was written survives a power loss.
  void sync();

 private:
  std::filesystem::path file_;
  Descriptor out_;
};

/// Whether write_file uses such a name for an unfinished file. If one remains, its writer was interrupted.
bool is_pending_file(const std::filesystem::path& name);

/// The user's cache folder for qtrain: $XDG_CACHE_HOME/qtrain, else ~/.cache/qtrain; empty if neither is an absolute
/// path.
std::filesystem::path user_cache_folder();

/// Syncs a folder, so that the names in it survive a power loss. Errors: ErrorKind::disk.
void sync_folder(const std::filesystem::path& folder);

/// Gives a finished folder its final name in the same parent: syncs it, renames, syncs the parent.
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace qtrain
