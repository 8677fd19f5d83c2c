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

/// Longer than any program in a test takes, even with the thread sanitizer.
inline constexpr std::chrono::seconds kLongest{kThreadSanitizer ? 600 : 60};

/// How a program is started.
struct Launch {
  std::vector<std::string> argv;  ///< the first is the program's path
  std::filesystem::path folder;   ///< where it runs; empty: here
  std::string input = {};         ///< its standard input
  /// "NAME=value": added to this process's environment, or replacing its variables.
  std::vector<std::string> environment = {};
  /// Standard input and error are a new terminal with this many columns.
  std::optional<int> columns = {};
  /// The reader of standard output: has closed it, or no longer reads, so that the pipe is full.
  bool reader_gone = false, reader_waits = false;
};

/// How it ended.
struct Outcome {
  int code = -1;              ///< exit code; 128 + signal when a signal ended it
  std::string out, err;       ///< what it wrote; `err` includes the escape sequences for a terminal
  bool timed_out = false;     ///< it was killed for taking too long
  std::int64_t peak_kib = 0;  ///< peak resident memory
  double cpu_seconds = 0;     ///< processor time in user mode, of all threads
};

/// Creates an anonymous file in memory; returns the entire contents of a file.
int memory_file(const char* name);
std::string contents(int fd);

/// Converts a status from waitpid to Outcome::code.
int exit_code(int status);

/// A running program. Its output goes to memory, so that it never waits for a reader.
class Process {
 public:
  explicit Process(const Launch& launch);
  /// Kills the program if it is still running.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  bool running();
  /// Whether it has installed a handler for this signal.
  bool handles(int number) const;
  /// Waits until it ends, and kills it after `limit`.
  Outcome wait(std::chrono::seconds limit = kLongest);

  /// What it has written to standard output, and to standard error, so far.
  std::string printed() const { return contents(out_); }
  std::string said();
  /// Waits until it has written this text. Returns false if it ends without that, or after `limit`.
  bool waits_for(const std::string& text, std::chrono::seconds limit = kLongest);

  /// Terminal events: typed text, a changed width, a closed window.
  void type(const std::string& text) const;
  void resize(int columns) const;
  void hang_up();

 private:
  bool reap();
  void open_terminal(int columns);
  void close_terminal();

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1, status_ = 0;
  int unread_ = -1;  // the other end of its standard output if that is a full pipe
  std::int64_t peak_kib_ = 0;
  double cpu_seconds_ = 0;
  bool ended_ = false;
  int terminal_ = -1, wake_ = -1;
  std::string terminal_name_, shown_;
  std::mutex shown_mutex_;
  std::thread reader_;
};

}  // namespace qtrain::e2e
