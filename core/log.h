#pragma once
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace qtrain {

enum class LogLevel : std::uint8_t { debug, info, warning, error, silent };

/// One state of a long job, for the progress line. Missing values are left out.
struct Progress {
  std::int64_t step = 0, total = 0;
  std::optional<double> loss, learning_rate, tokens_per_second, eta_seconds;
  std::string_view unit = "step";
  bool logged = false;  ///< worth a line of its own where the output is not a terminal
};

/// "1:02:03", "4:05": a duration for people.
std::string format_duration(double seconds);

/// The line for a Progress, without a line end.
std::string format_progress(const Progress& p);

/// Everything the program says: messages for people on stderr, results on stdout. Nothing else prints.
class Log {
 public:
  struct Sinks {
    std::FILE* people = stderr;
    std::FILE* result = stdout;
  };
  explicit Log(LogLevel level = LogLevel::info) : Log(level, Sinks{}) {}
  Log(LogLevel level, Sinks sinks);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void set_level(LogLevel level) { level_ = level; }
  LogLevel level() const { return level_; }
  /// False turns the progress line off (`disable_tqdm`); messages still come.
  void show_progress(bool shown) { progress_shown_ = shown; }

  template <class... A>
  void debug(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::debug, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void info(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::info, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void warn(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::warning, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void error(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::error, fmt::format(f, std::forward<A>(a)...));
  }

  /// A terminal shows one line that is redrawn (at most ten times a second); elsewhere each `logged` state and the
  /// last one become a line.
  void progress(const Progress& p);

  /// Text for people on stderr as it is, at once, without a line end (streamed answers of `chat`).
  void stream(std::string_view text);

  /// A line of the command's result on stdout. Throws ErrorKind::disk when stdout cannot be written (a closed pipe).
  void result(std::string_view line);
  /// The same without a line end, flushed.
  void result_stream(std::string_view text);

 private:
  void say(LogLevel level, std::string_view message);
  void clear_line();
  void write_result(std::string_view text, std::string_view end);

  std::mutex mutex_;
  LogLevel level_;
  Sinks sinks_;
  bool terminal_ = false, line_shown_ = false, progress_shown_ = true;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace qtrain
