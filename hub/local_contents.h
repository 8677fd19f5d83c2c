#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/os/descriptor.h"

namespace qtrain {

/// The contents of a file that is pushed: an open file on disk, or a text that was made for it.
class LocalContents {
 public:
  /// Tells whether a file was written since.
  struct Stamp {
    std::int64_t seconds = 0, nanoseconds = 0;
    std::uint64_t size = 0;
    bool operator==(const Stamp&) const = default;
  };

  /// Throws ErrorKind::input if the file cannot be read, or is no regular file.
  explicit LocalContents(std::filesystem::path file);
  static LocalContents of_text(std::string text);

  std::uint64_t size() const { return size_; }
  /// Copies bytes from `offset` on; returns how many, 0 if that fails. Does not throw; may be called by several
  /// threads.
  std::size_t read(std::uint64_t offset, std::span<std::byte> room) const;
  /// The bytes in [begin, begin + size). Throws ErrorKind::input if they cannot be read.
  std::string bytes(std::uint64_t begin, std::uint64_t size) const;
  std::string all() const { return bytes(0, size_); }
  Stamp stamp() const;
  /// Throws ErrorKind::input if the file has another size or time than at an earlier `stamp`.
  void require_unchanged(const Stamp& since) const;

 private:
  LocalContents() = default;

  std::filesystem::path path_;  ///< empty for a text
  Descriptor file_;
  std::string text_;
  std::uint64_t size_ = 0;
};

/// SHA-256 of the contents. Throws ErrorKind::input as LocalContents::bytes does, ErrorKind::stopped after a signal.
std::string sha256_of(const LocalContents& contents);
/// The name that git gives to these contents. Throws likewise.
std::string git_sha1_of(const LocalContents& contents);

}  // namespace qtrain
