#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/os/descriptor.h"

namespace qtrain {

/// How much a Spool keeps in memory, and where it puts the rest.
struct SpoolOptions {
  std::filesystem::path folder;                ///< for files; empty: everything stays in memory
  std::size_t memory = std::size_t{32} << 20;  ///< up to this many bytes, no file is used
};

/// Bytes that are written once, in order, and then read as one span: in memory while they are few, else in an unnamed
/// file, which disappears with the object. Errors: ErrorKind::disk.
class Spool {
 public:
  explicit Spool(SpoolOptions options = {}) : options_(std::move(options)) {}
  ~Spool();
  Spool(Spool&& other) noexcept;
  Spool& operator=(Spool&&) = delete;

  void append(std::span<const std::byte> bytes);
  std::uint64_t size() const { return written_ + memory_.size(); }
  /// Ends writing and returns all bytes. The view is valid for the life of the object.
  std::span<const std::byte> bytes();
  /// Releases the memory behind the parts of a file that have been read; reading them again reads the file again.
  void release() const;
  /// Empties it, so that it can be written again.
  void clear();

 private:
  void open_file();
  void flush();
  void unmap();

  SpoolOptions options_;
  std::vector<std::byte> memory_;  // everything, or what is not in the file yet
  Descriptor file_;
  std::uint64_t written_ = 0;  // to the file
  std::span<const std::byte> mapped_;
};

/// A Spool of numbers.
template <class T>
class NumberSpool {
 public:
  explicit NumberSpool(SpoolOptions options = {}) : spool_(std::move(options)) {}
  void append(std::span<const T> values) { spool_.append(std::as_bytes(values)); }
  void push(T value) { append(std::span(&value, 1)); }
  std::int64_t size() const { return static_cast<std::int64_t>(spool_.size() / sizeof(T)); }
  std::span<const T> values() {
    const std::span<const std::byte> bytes = spool_.bytes();
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  void release() const { spool_.release(); }
  void clear() { spool_.clear(); }

 private:
  Spool spool_;
};

}  // namespace qtrain
