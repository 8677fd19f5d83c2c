#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/log.h"
#include "report/metrics.h"

namespace qtrain {

/// In output_dir.
inline constexpr const char* kMessages = "messages.jsonl";

/// messages.jsonl: the warnings of a run and how it ended, each with its time and the last finished step. Only created
/// if there is a message; on a resume, rows of later steps are removed.
class RunMessages {
 public:
  /// Writes nothing, for ranks that keep no file.
  RunMessages() = default;
  /// Throws ErrorKind::disk.
  RunMessages(const std::filesystem::path& file, std::int64_t resumed_step);

  /// Adds the new warnings of `log`.
  void take(Log& log, std::int64_t step);
  /// Adds a message. `level`: "stopped" or "failed".
  void add(std::string_view level, const std::string& text, std::int64_t step);
  /// Waits until all messages are on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  std::optional<AppendedFile> file_;
  std::size_t taken_ = 0;
};

}  // namespace qtrain
