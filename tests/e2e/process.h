#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/build.h"

namespace qtrain::e2e {

/// Longer than any program of a test takes, also with the thread sanitizer.
inline constexpr std::chrono::seconds kLongest{kThreadSanitizer ? 600 : 60};

/// How a program is started.
struct Launch {
  std::vector<std::string> argv;  ///< the first is the program's path
  std::filesystem::path folder;   ///< where it runs; empty: here
  std::string input = {};         ///< its standard input
  /// "NAME=value": in place of or beside what this process has.
  std::vector<std::string> environment = {};
  /// Standard input and error are a terminal of its own, of so many columns.
  std::optional<int> columns = {};
  /// What became of whoever read its standard output: it has closed it, or it reads no more and the pipe is full.
  bool reader_gone = false, reader_waits = false;
};

/// How it ended.
struct Outcome {
  int code = -1;              ///< exit code; 128 + signal when a signal ended it
  std::string out, err;       ///< what it wrote; `err` with the escape sequences of a terminal
  bool timed_out = false;     ///< it was killed for taking too long
  std::int64_t peak_kib = 0;  ///< most memory that it had
  double cpu_seconds = 0;     ///< processor time of its own code, of all threads
};

/// An open file in memory, and all that is in it.
int memory_file(const char* name);
std::string contents(int fd);

/// Outcome::code of what waitpid says.
int exit_code(int status);

/// A running program. What it writes goes to memory, so that it never waits for a reader.
class Process {
 public:
  explicit Process(const Launch& launch);
  /// Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  bool running();
  /// Whether it has a handler for this signal by now.
  bool handles(int number) const;
  /// Waits until it has ended, and kills it after `limit`.
  Outcome wait(std::chrono::seconds limit = kLongest);

  /// What it has written to standard output and to standard error up to now.
  std::string printed() const { return contents(out_); }
  std::string said();
  /// Waits until it has said this. False when it ended without, or after `limit`.
  bool waits_for(const std::string& text, std::chrono::seconds limit = kLongest);

  /// Terminal events: typed text, another width, a closed window.
  void type(const std::string& text) const;
  void resize(int columns) const;
  void hang_up();

 private:
  bool reap();
  void open_terminal(int columns);
  void close_terminal();

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1, status_ = 0;
  int unread_ = -1;  // the other end of its standard output, where that is a full pipe
  std::int64_t peak_kib_ = 0;
  double cpu_seconds_ = 0;
  bool ended_ = false;
  int terminal_ = -1, wake_ = -1;
  std::string terminal_name_, shown_;
  std::mutex shown_mutex_;
  std::thread reader_;
};

}  // namespace qtrain::e2e
