#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "dist/handshake.h"
#include "dist/socket.h"

namespace qtrain {

/// What a rank connects to, and how.
struct Call {
  Endpoint to;
  Handshake::Options handshake;
  std::chrono::milliseconds patience{};
  std::string whom = "rank 0";  ///< for messages
  /// Receives messages about what the call waits for: an unresolved name at once and repeatedly, anything else after a
  /// while.
  std::function<void(const std::string&)> say = {};
  std::function<void()> meanwhile = {};  ///< called between attempts; may throw to end the call
};

/// Connects, with both ends authenticated by the secret. Retries until patience runs out; a name may stay unresolved
/// for two minutes, and for some seconds the port may belong to something else, such as an earlier run that is ending.
/// Throws ErrorKind::peer if nobody answers, ErrorKind::usage if something else does.
Socket connected(const Call& call);

}  // namespace qtrain
