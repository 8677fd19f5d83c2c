#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "core/os/descriptor.h"

namespace qtrain {

/// What happens, for programs: a JSON object a line, {"event": NAME, "time": SECONDS, ...}, as it happens. The work
/// does not depend on it: where nobody reads any more, or the disk is full, nothing more is written. A reader that does
/// not keep up loses whole lines, it does not hold up the work. What a file held before stays.
class EventStream {
 public:
  /// Errors: ErrorKind::disk where the file cannot be opened. A FIFO need not have a reader yet.
  explicit EventStream(const std::filesystem::path& file);
  /// `members`: a JSON object, "{...}".
  void write(std::string_view name, std::string_view members);
  /// Events that were not written.
  std::int64_t dropped() const { return dropped_; }

 private:
  void send(std::string_view& text);

  std::mutex mutex_;
  Descriptor file_;
  std::string begun_;  ///< the rest of a line that a pipe has taken a part of
  std::atomic<std::int64_t> dropped_ = 0;
  bool broken_ = false;
};

}  // namespace qtrain
