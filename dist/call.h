#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "dist/handshake.h"
#include "dist/socket.h"

namespace qtrain {

/// Whom a rank connects to, and as what.
struct Call {
  Endpoint to;
  Handshake::Options handshake;
  std::chrono::milliseconds patience{};
  std::string whom = "rank 0";  ///< for messages
  /// Told what keeps the call waiting, for people: a name without an address at once and again and again, other things
  /// after a while.
  std::function<void(const std::string&)> say = {};
  std::function<void()> meanwhile = {};  ///< called between tries; ends the call where it throws
};

/// A connection both ends of which have proved that they know the secret. Tries until patience is over; a name may be
/// without an address for two minutes, and for some seconds the place may be that of somebody else, such as an earlier
/// run that is ending. Errors: ErrorKind::peer where nobody answers, ErrorKind::usage where somebody else does.
Socket connected(const Call& call);

}  // namespace qtrain
