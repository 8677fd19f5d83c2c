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
  int exit_code = 0;  ///< where `signal` is 0
  int signal = 0;

  bool failed() const { return signal != 0 || exit_code != 0; }
  /// "exit code 3", "signal 9 (Killed)"
  std::string text() const;
};

/// A process that this one has started, in a process group of its own, so that Ctrl-C does not reach it twice; it is
/// asked to stop when this one dies.
class Child {
 public:
  enum class Output : std::uint8_t { shared, piped };  ///< stdout and stderr: those of this process; stderr to a pipe
  struct Start {
    std::vector<std::string> command, variables;  ///< "NAME=value" beside the environment of this process
    Output output = Output::shared;
  };
  /// Errors: ErrorKind::internal where no process can be made.
  explicit Child(const Start& start);
  /// Kills it if it still runs.
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  /// How the process ended, or nothing while it runs. Reads its final error.
  std::optional<ChildEnd> poll();
  void send(int signal) const;
  /// The reading end of its stderr; below 0 where that is shared.
  int messages() const { return messages_.get(); }
  /// What the process has sent to this one (send_final_error).
  const std::string& final_error() const { return final_error_; }
  /// A number that changes while it writes to files; nothing where that cannot be known. Waiting for a disk counts.
  std::optional<std::uint64_t> written();

 private:
  void listen();

  pid_t pid_ = -1;
  std::optional<ChildEnd> end_;
  Descriptor messages_, words_;
  std::string final_error_ = {};
  std::uint64_t disk_waits_ = 0;  ///< that were seen
};

}  // namespace qtrain
