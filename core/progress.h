#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qtrain {

class Log;

/// One state of a long job, for the progress line. Missing values are left out.
struct Progress {
  std::int64_t step = 0, total = 0;
  std::optional<double> epoch, loss, learning_rate, tokens_per_second, eta_seconds;
  std::optional<double> memory_bytes, data_wait;  ///< data_wait: the share of time spent waiting for rows
  std::string_view unit = "step";
  bool logged = false;  ///< printed as a permanent line
  bool counted = true;  ///< false: steps are bytes or the like; only the percentage is shown
};

/// "1:02:03", "4:05": a duration for people.
std::string format_duration(double seconds);

/// The line for a Progress, without a line end.
std::string format_progress(const Progress& p);
/// The same in at most `width` columns; the least important parts are dropped first.
std::string format_progress(const Progress& p, int width);
/// The same with a bar, for the live line.
std::string format_live(const Progress& p, int width);

/// Shows the progress of a job during the life of this object: on the live line of a terminal, elsewhere as a line
/// every few seconds.
class ProgressBar {
 public:
  struct Job {
    std::string unit;  ///< the activity: "tokenizing"
    std::int64_t total = 0;
    bool counted = true;  ///< as in Progress
  };
  ProgressBar(Log& log, Job job);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(std::int64_t steps = 1) { set(done_ + steps); }
  /// Reports the number of finished steps.
  void set(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  Log& log_;
  Job job_;
  std::int64_t done_ = 0;
  Clock::time_point begin_ = Clock::now(), reported_ = begin_;
};

}  // namespace qtrain
