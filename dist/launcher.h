#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/log.h"
#include "dist/rank_place.h"

namespace qtrain {

/// The processes of a run on this machine.
struct Launch {
  std::vector<std::string> command;         ///< program and arguments, the same for all
  int ranks = 1;                            ///< on this machine
  int nodes = 1, node = 0;                  ///< machines with as many ranks each, and the number of this one
  Endpoint meeting;                         ///< of the first machine; with one machine: any free port of loopback
  std::chrono::milliseconds grace{};  ///< for the other ranks to end by themselves after one was lost
};

/// Starts the ranks, hands them the rendezvous, forwards a stop to them, and waits for all. What ranks other than 0 say
/// is handed on with their number. Returns the exit code of the run: 0, that of the rank whose end ended the others,
/// or that of ErrorKind::peer, with its cause logged, where a rank was killed. Errors: those of StoreServer.
int launch_ranks(const Launch& launch, Log& log);

}  // namespace qtrain
