#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "monitor/quantities.h"

namespace qtrain::monitor {

/// The newest row of a run's training, of its metrics.jsonl.
struct RunRow {
  std::int64_t step = 0;
  Values values;  ///< by the keys of run_quantities()
};

/// Follows the metrics.jsonl of a run as it grows, also where the run starts anew and the file with it.
class RunRows {
 public:
  explicit RunRows(std::filesystem::path folder) : file_(std::move(folder) / "metrics.jsonl") {}
  /// Reads what has come; whether that was a new row of training.
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
