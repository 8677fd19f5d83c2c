#pragma once
#include <filesystem>
#include <mutex>
#include <string_view>

#include "core/descriptor.h"

namespace qtrain {

/// What happens, for programs: a JSON object a line, {"event": NAME, "time": SECONDS, ...}, as it happens. The work
/// does not depend on it: where nobody reads any more, or the disk is full, nothing more is written. A reader that does
/// not keep up loses events, it does not hold up the work.
class EventStream {
 public:
  /// Errors: ErrorKind::disk where the file cannot be opened. A FIFO is opened once somebody reads.
  explicit EventStream(const std::filesystem::path& file);
  /// `members`: a JSON object, "{...}".
  void write(std::string_view name, std::string_view members);

 private:
  std::mutex mutex_;
  Descriptor file_;
  bool broken_ = false;
};

}  // namespace qtrain
