#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "dist/rank_place.h"

namespace qtrain {

/// The ranks to start on this machine.
struct Launch {
  std::vector<std::string> command;   ///< program and arguments, the same for all
  int ranks = 1;                      ///< on this machine
  int nodes = 1, node = 0;            ///< number of machines, each with as many ranks, and the index of this one
  Endpoint meeting;                   ///< on the first machine; with one machine, any free port of loopback
  int attempt = 0;                    ///< how often the run was started before, the same on all machines
  std::chrono::milliseconds grace{};  ///< time for the other ranks to end by themselves after one was lost
  /// After one rank has ended successfully, the others must too within this time, except one that goes on alone.
  std::chrono::milliseconds end_together{std::chrono::minutes(1)};
  /// The same as `grace` for a rank that is writing to files, such as a checkpoint.
  std::chrono::milliseconds writing_grace{std::chrono::minutes(10)};
};

/// How the ranks of this machine ended: with 0, with the code of the rank that made the others end, or with that of
/// ErrorKind::peer.
struct LaunchEnd {
  int exit_code = 0;
  std::optional<Error> cause = {};  ///< why they ended; nothing if no rank has reported it
};

/// Starts the ranks, tells them where to meet, forwards a stop to them, and waits for all. Prints the output of ranks
/// other than 0 with their number, except for their final errors, which the caller reports. Throws as StoreServer does.
LaunchEnd launch_ranks(const Launch& launch, Log& log);

}  // namespace qtrain
