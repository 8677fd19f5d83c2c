#pragma once
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// Resident memory of this process in MiB: now, and the most it ever was. Source: /proc/self/status.
struct ResidentMemory {
  double now_mb = 0, peak_mb = 0;
};
ResidentMemory resident_memory();

/// Seconds since this process was started. Source: /proc/self/stat, /proc/uptime.
double process_seconds();

/// Seconds since 1970.
double unix_time();

/// A measured number in a document: JSON has neither NaN nor infinity, null takes their place.
Json finite_or_null(double x);
/// The same for people, of a number or such a null: with so many digits behind the point, or "not finite".
std::string finite_or_words(const Json& x, int digits);

/// A file that grows at its end and is flushed at once. Errors: ErrorKind::disk.
class AppendedFile {
 public:
  explicit AppendedFile(const std::filesystem::path& file);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;
  void append(std::string_view bytes);
  /// Returns when all of it is on the disk.
  void sync();

 private:
  [[noreturn]] void fail_write() const;

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

/// The whole lines of a file of rows ({"step", ...}) up to this step; a torn last line is left out.
std::string rows_until(const std::filesystem::path& file, std::int64_t step);

/// So much work in so much time.
struct Pace {
  double seconds = 0;
  std::int64_t steps = 0, tokens = 0;
};

/// metrics.jsonl: every logged row as it happens. On a resume rows of later steps and a torn last line are cut off.
class MetricsFile {
 public:
  /// Of a rank that writes none.
  MetricsFile() = default;
  MetricsFile(const std::filesystem::path& file, std::int64_t resumed_step);
  /// The totals that an earlier part of the run logged after its last step, which was the resumed one.
  const std::optional<Json>& totals() const { return totals_; }
  /// What the rows of earlier parts of the run say of the time that it took.
  const Pace& logged() const { return logged_; }
  /// Errors: ErrorKind::disk.
  void append(const Json& row) {
    if (file_) file_->append(dump_json(row) + "\n");
  }
  /// Before a checkpoint or a final model has its name: what they say was logged survives a loss of power.
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
