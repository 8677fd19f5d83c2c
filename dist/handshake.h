#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "dist/rank_secret.h"

namespace qtrain {

/// The first exchange between two processes: each proves that it knows the secret of the run, without revealing it.
/// Both send a hello, which ends in random bytes; the caller then sends an HMAC of both hellos and gets one back. An
/// HMAC for a different connection, purpose or side is not valid. This class handles bytes, not sockets.
class Handshake {
 public:
  enum class Side : std::uint8_t { called, caller };  ///< the end that listens; the end that connects
  enum class State : std::uint8_t {
    goes_on,
    proved,
    foreign,  ///< the other end did not send a hello
    refused   ///< the other end does not know the secret, or says that this one does not
  };
  struct Options {
    RankSecret secret;
    std::string purpose = {};  ///< of the connection, the same at both ends
    std::uint32_t number = 0;  ///< the number of this end: its rank
    /// Port of the called end, as the caller knows it. It prevents a relay: if a rank of another run with the same
    /// secret calls a process at another port, that process cannot pass on what the rank sends.
    std::uint16_t port = 0;
  };
  Handshake(Side side, const Options& options);

  /// The first message to send.
  const std::string& hello() const { return own_; }
  /// Number of bytes to read next; 0 when the handshake is over.
  std::size_t wanted() const;
  /// Takes up to that many bytes and returns the reply.
  std::string take(std::string_view bytes);
  State state() const { return state_; }
  /// Rank number of the other end, once it is authenticated.
  std::uint32_t number() const;

 private:
  std::string take_hello();
  std::string take_proof();
  void take_verdict();
  std::string proof_of(Side side) const;

  Side side_;
  Options options_;
  State state_ = State::goes_on;
  std::string own_, other_, received_;  ///< both hellos; the received part of the next message
};

}  // namespace qtrain
