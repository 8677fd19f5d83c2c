#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "core/os/descriptor.h"

namespace qtrain {

/// Events for other programs, one JSON object per line, {"event": NAME, "time": SECONDS, ...}, written as they happen.
/// Never blocks or fails the work: if the reader is gone or the disk is full, it stops writing, and a slow reader loses
/// whole lines. Appends to an existing file, on a line of its own.
class EventStream {
 public:
  /// Throws ErrorKind::disk if the file cannot be opened. A FIFO need not have a reader yet.
  explicit EventStream(const std::filesystem::path& file);
  /// `members`: a JSON object, "{...}".
  void write(std::string_view name, std::string_view members);
  /// Number of events that were dropped.
  std::int64_t dropped() const { return dropped_; }

 private:
  void send(std::string_view& text);

  std::mutex mutex_;
  std::string unwritten_;  ///< the rest of a line that was written partly
  Descriptor file_;
  std::atomic<std::int64_t> dropped_ = 0;
  bool broken_ = false;
};

}  // namespace qtrain
