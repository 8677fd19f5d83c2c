#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/formats/json.h"
#include "core/os/descriptor.h"
#include "core/os/direct_file.h"

namespace qtrain::monitor {

/// A file {"samples": [...], ...} that is one whole JSON document after every sample, so that one who is killed leaves
/// all that there was. A device or FIFO gets the same document piece by piece, and is whole after the last one.
/// Errors: ErrorKind::disk.
class SampleFile {
 public:
  explicit SampleFile(std::filesystem::path file);
  /// `rest`: an object, whose members stand behind the samples and take the place of the former ones.
  void add(const Json& sample, const Json& rest);
  /// The same without another sample; the last call about a device or FIFO.
  void set_rest(const Json& rest);

 private:
  void write(const std::string& text);
  void append(const std::string& text);

  std::filesystem::path path_;
  Descriptor file_;
  std::optional<DirectFile> direct_;  ///< instead of it: what is written there stays
  std::int64_t end_ = 0;              ///< of the samples, in bytes
  bool any_ = false;
};

}  // namespace qtrain::monitor
