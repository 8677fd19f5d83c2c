#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
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
};

/// How it ended.
struct Outcome {
  int code = -1;           ///< exit code; 128 + signal when a signal ended it
  std::string out, err;    ///< what it wrote
  bool timed_out = false;  ///< it was killed for taking too long
};

/// A running program. What it writes goes to memory files, so that it never waits for a reader.
class Process {
 public:
  explicit Process(const Launch& launch);
  /// Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const;
  bool running();
  /// Waits until it has ended, and kills it after `limit`.
  Outcome wait(std::chrono::seconds limit = kLongest);

 private:
  bool reap();

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1, status_ = 0;
  bool ended_ = false;
};

}  // namespace qtrain::e2e
