#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/os/descriptor.h"

namespace qtrain {

/// How a process ended.
struct ChildEnd {
  int exit_code = 0;  ///< if `signal` is 0
  int signal = 0;

  bool failed() const { return signal != 0 || exit_code != 0; }
  /// "exit code 3", "signal 9 (Killed)"
  std::string text() const;
};

/// A child process in its own process group, so that Ctrl-C does not reach it twice. It gets SIGINT when this process
/// dies.
class Child {
 public:
  enum class Output : std::uint8_t { shared, piped };  ///< uses this process's stdout and stderr; or a pipe as stderr
  struct Start {
    std::vector<std::string> command, variables;  ///< "NAME=value", added to the environment of this process
    Output output = Output::shared;
  };
  /// Throws ErrorKind::internal if no process can be started, ErrorKind::usage if a limit of the system is reached.
  explicit Child(const Start& start);
  /// Kills it if it still runs.
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  /// How the process ended, or nothing while it runs. Reads its final error.
  std::optional<ChildEnd> poll();
  void send(int signal) const;
  /// The read end of its stderr pipe; below 0 if stderr is shared.
  int messages() const { return messages_.get(); }
  /// What the process has sent to this one (dist/final_error.h).
  const std::string& final_error() const { return final_error_; }
  /// A number that changes while it writes to files or waits for a disk; nothing if that is unknown.
  std::optional<std::uint64_t> written();

 private:
  void read_final_error();

  pid_t pid_ = -1;
  std::optional<ChildEnd> end_;
  Descriptor messages_, error_pipe_;
  std::string final_error_ = {};
  std::uint64_t disk_waits_ = 0;  ///< number of waits that were seen
};

}  // namespace qtrain
