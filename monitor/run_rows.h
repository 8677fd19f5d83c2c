#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "monitor/quantities.h"

namespace qtrain::monitor {

/// The newest training row in a run's metrics.jsonl.
struct RunRow {
  std::int64_t step = 0;
  Values values;  ///< by the keys of run_quantities()
};

/// Follows a run's metrics.jsonl as it grows, even if the run starts over and rewrites the file.
class RunRows {
 public:
  explicit RunRows(std::filesystem::path folder) : file_(std::move(folder) / "metrics.jsonl") {}
  /// Reads new lines. Returns whether there was a new training row.
  bool update();
  const std::optional<RunRow>& last() const { return last_; }
  /// Whether the run has written its totals.
  bool finished() const { return finished_; }

 private:
  bool take(const std::string& line);

  std::filesystem::path file_;
  std::uintmax_t read_ = 0;
  std::optional<RunRow> last_;
  bool finished_ = false;
};

}  // namespace qtrain::monitor
