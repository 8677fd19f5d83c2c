#pragma once
#include <filesystem>
#include <span>

#include "core/os/descriptor.h"

namespace qtrain {

/// A device or FIFO, written in place (WriteMode::in_place). A stop ends the wait for its reader (ErrorKind::stopped).
/// Errors: ErrorKind::disk.
class DirectFile {
 public:
  /// Waits until somebody opens a FIFO for reading.
  explicit DirectFile(std::filesystem::path file);
  /// Writes all bytes, without a buffer.
  void append(std::span<const std::byte> bytes);
  void close();

 private:
  bool waits_for_reader(int error) const;

  std::filesystem::path file_;
  Descriptor out_;
};

}  // namespace qtrain
