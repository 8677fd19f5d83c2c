#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "dist/rank_place.h"

namespace qtrain {

/// The processes of a run on this machine.
struct Launch {
  std::vector<std::string> command;   ///< program and arguments, the same for all
  int ranks = 1;                      ///< on this machine
  int nodes = 1, node = 0;            ///< machines with as many ranks each, and the number of this one
  Endpoint meeting;                   ///< of the first machine; with one machine: any free port of loopback
  std::chrono::milliseconds grace{};  ///< for the other ranks to end by themselves after one was lost
};

/// How the ranks of this machine ended: with 0, the code of the rank whose end ended the others, or that of
/// ErrorKind::peer.
struct LaunchEnd {
  int exit_code = 0;
  std::optional<ErrorText> lost = {};  ///< where a rank was killed
  bool answered = true;                ///< whether rank 0, which answers for all, ended by itself
};

/// Starts the ranks, hands them the rendezvous, forwards a stop to them, and waits for all. What ranks other than 0 say
/// is handed on with their number. Errors: those of StoreServer.
LaunchEnd launch_ranks(const Launch& launch, Log& log);

}  // namespace qtrain
