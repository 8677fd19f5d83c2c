#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace qtrain {

/// How a command of this program ended that was run as a separate process.
struct OwnProcessEnd {
  int exit_code = 0;  ///< 128 + signal if a signal ended it
  int signal = 0;
  std::string output;               ///< stderr, if it was captured
  std::optional<Error> error = {};  ///< the error it ended with, which the caller must report
};
enum class OwnProcessOutput : std::uint8_t { shown, kept };

/// Runs `qtrain WORDS...` to completion in the current folder. Forwards a stop to it; the caller then sees its exit
/// code. Throws ErrorKind::internal if no process can be started.
OwnProcessEnd run_own_process(const std::vector<std::string>& words, OwnProcessOutput output);

}  // namespace qtrain
