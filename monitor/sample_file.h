#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/formats/json.h"
#include "core/os/descriptor.h"
#include "core/os/direct_file.h"

namespace qtrain::monitor {

/// A file {"samples": [...], ...} that is a complete JSON document after every sample, so that nothing is lost if the
/// program is killed. A device or FIFO gets the same document piece by piece, complete only after the last one. Throws
/// ErrorKind::disk.
class SampleFile {
 public:
  explicit SampleFile(std::filesystem::path file);
  /// Adds a sample. `rest` is an object whose members follow the samples and replace the former ones.
  void add(const Json& sample, const Json& rest);
  /// Replaces only the rest; for a device or FIFO this must be the last call.
  void set_rest(const Json& rest);

 private:
  void write(const std::string& text);
  void append(const std::string& text);

  std::filesystem::path path_;
  Descriptor file_;
  std::optional<DirectFile> direct_;  ///< used instead of file_ for a device or FIFO
  std::int64_t end_ = 0;              ///< end of the samples in the file, in bytes
  bool any_ = false;
};

}  // namespace qtrain::monitor
