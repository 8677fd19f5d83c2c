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
  int nodes = 1, node = 0;            ///< machines with as many ranks each, and the number of this one
  Endpoint meeting;                   ///< of the first machine; with one machine: any free port of loopback
  int attempt = 0;                    ///< how often the run was started before, the same on all machines
  std::chrono::milliseconds grace{};  ///< for the other ranks to end by themselves after one was lost
  /// The same for a rank that is writing to files, such as a checkpoint.
  std::chrono::milliseconds writing_grace{std::chrono::minutes(10)};
};

/// How the ranks of this machine ended: with 0, the code of the rank whose end ended the others, or that of
/// ErrorKind::peer.
struct LaunchEnd {
  int exit_code = 0;
  std::optional<Error> cause = {};  ///< what all of them ended for; nothing where no rank has said so
};

/// Starts the ranks, hands them the rendezvous, forwards a stop to them, and waits for all. What ranks other than 0 say
/// is handed on with their number, but for what they end for: that is for the caller to tell. Errors: those of
/// StoreServer.
LaunchEnd launch_ranks(const Launch& launch, Log& log);

}  // namespace qtrain
