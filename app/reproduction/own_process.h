#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace qtrain {

/// How a command of this program ended that ran as a process of its own.
struct OwnProcessEnd {
  int exit_code = 0;
  std::string said;                 ///< on stderr, where that was kept
  std::optional<Error> error = {};  ///< that it ended with, which it leaves to its caller to tell
};
enum class OwnProcessOutput : std::uint8_t { shown, kept };

/// Runs `qtrain WORDS...` to its end, in the folder of this process. A stop is forwarded to it; the caller then sees
/// its exit code. Errors: ErrorKind::internal where no process can be made.
OwnProcessEnd run_own_process(const std::vector<std::string>& words, OwnProcessOutput output);

}  // namespace qtrain
