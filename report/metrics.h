#pragma once
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// Resident memory of this process in MiB, current and peak. Source: /proc/self/status.
struct ResidentMemory {
  double now_mb = 0, peak_mb = 0;
};
ResidentMemory resident_memory();

/// Seconds since this process started. Source: /proc/self/stat, /proc/uptime.
double process_seconds();

/// Seconds since the Unix epoch.
double unix_time();

/// The number as JSON, or null for NaN and infinity, which JSON does not have.
Json finite_or_null(double x);
/// Text of such a number with `digits` decimals, or "not finite" for null.
std::string finite_or_words(const Json& x, int digits);

/// A file opened for appending; every append is flushed. Throws ErrorKind::disk.
class AppendedFile {
 public:
  explicit AppendedFile(const std::filesystem::path& file);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;
  void append(std::string_view bytes);
  /// Waits until everything is on the disk.
  void sync();

 private:
  [[noreturn]] void fail_write() const;

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

/// The complete lines of a file of rows ({"step", ...}) up to this step, without an incomplete last line.
std::string rows_until(const std::filesystem::path& file, std::int64_t step);

/// An amount of work and the time it took.
struct Pace {
  double seconds = 0;
  std::int64_t steps = 0, tokens = 0;
};

/// metrics.jsonl: every logged row, written immediately. On a resume, rows of later steps and an incomplete last line
/// are removed.
class MetricsFile {
 public:
  /// Writes nothing, for ranks that keep no file.
  MetricsFile() = default;
  MetricsFile(const std::filesystem::path& file, std::int64_t resumed_step);
  /// The totals logged by an earlier part of the run, if it ended with the resumed step.
  const std::optional<Json>& totals() const { return totals_; }
  /// Time and work of the earlier parts of the run, from their logged rows.
  const Pace& logged() const { return logged_; }
  /// Throws ErrorKind::disk.
  void append(const Json& row) {
    if (file_) file_->append(dump_json(row) + "\n");
  }
  /// Waits until all rows are on the disk. Called before a checkpoint gets its final name, so that the rows that it
  /// relies on survive a power failure.
  void sync() {
    if (file_) file_->sync();
  }

 private:
  std::optional<Json> totals_;
  Pace logged_;
  std::optional<AppendedFile> file_;
};

/// Seconds since construction or the last lap.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double lap() {
    const double s = seconds();
    begin_ = Clock::now();
    return s;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace qtrain
