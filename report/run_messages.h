#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/log.h"
#include "report/metrics.h"

namespace qtrain {

/// messages.jsonl: the warnings of a run and how it ended, each with its time and the step that was done. Made where
/// there is something to say; on a resume rows of later steps go.
class RunMessages {
 public:
  /// Of a rank that writes none.
  RunMessages() = default;
  /// Errors: ErrorKind::disk.
  RunMessages(const std::filesystem::path& file, std::int64_t resumed_step);

  /// The warnings that `log` has not handed over yet.
  void take(Log& log, std::int64_t step);
  /// `level`: "stopped" or "failed".
  void add(std::string_view level, const std::string& text, std::int64_t step);
  /// Waits until what was added is on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  std::optional<AppendedFile> file_;
  std::size_t taken_ = 0;
};

}  // namespace qtrain
