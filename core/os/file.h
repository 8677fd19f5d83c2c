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
  /// Gives back the memory behind a part that has been read; reading it again reads the file again. Bytes that are not
  /// of this file are left alone.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

/// The whole of a regular file of at most max_bytes.
std::string read_text(const std::filesystem::path& file, std::uint64_t max_bytes = std::uint64_t{1} << 32);

/// Whether a file is what git leaves in the place of a large one that git-lfs has not fetched; and the input error that
/// says so.
bool is_lfs_pointer(std::string_view contents);
[[noreturn]] void fail_lfs_pointer(const std::filesystem::path& file);

/// Hands out the contents of a file in chunks; memory holds one of them.
void for_each_chunk(const std::filesystem::path& file, const std::function<void(std::span<const std::byte>)>& take);

/// Writes `file` through a temporary name in the same folder, fsync and rename: it is whole or not there.
/// Errors (ErrorKind::disk) name the file and errno.
void write_file(const std::filesystem::path& file, std::string_view contents);
/// The same for what a command was called for: a stop leaves nothing up to the moment when the file gets its name, and
/// is not answered from then on (finish_or_stop).
void write_result(const std::filesystem::path& file, std::string_view contents);
/// The same with the contents produced piecewise: `produce` is handed a function that appends bytes.
void write_file(const std::filesystem::path& file,
                const std::function<void(const std::function<void(std::span<const std::byte>)>& append)>& produce);
void write_result(const std::filesystem::path& file,
                  const std::function<void(const std::function<void(std::span<const std::byte>)>& append)>& produce);

/// A file that several processes write together, each its own bytes. It is not whole before all are done: it belongs
/// into a folder that gets its name only then. Errors: ErrorKind::disk.
class SharedFile {
 public:
  /// Makes it, with `size` bytes; or opens the one that another process has made.
  SharedFile(const std::filesystem::path& file, std::optional<std::uint64_t> size);
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Everything that was written survives a loss of power then.
  void sync();

 private:
  std::filesystem::path file_;
  Descriptor out_;
};

/// Whether write_file gives such a name to a file until it is finished; one that stays was interrupted.
bool is_pending_file(const std::filesystem::path& name);

/// Where programs keep what they can make again: qtrain in $XDG_CACHE_HOME, else in ~/.cache; empty where neither is an
/// absolute path.
std::filesystem::path user_cache_folder();

/// Lets the names that lie in a folder survive a loss of power. Errors: ErrorKind::disk.
void sync_folder(const std::filesystem::path& folder);

/// Gives a finished folder its final name in the same parent: syncs it, renames, syncs the parent.
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace qtrain
