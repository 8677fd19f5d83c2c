#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/os/descriptor.h"

namespace qtrain {

/// A network address.
struct Endpoint {
  std::string host;  ///< a name or an address; of IPv6 also in brackets
  std::uint16_t port = 0;

  /// "host:port", "[::1]:port"
  std::string text() const;
};

/// Why a connection failed.
struct ConnectFailure {
  std::string why;
  bool unknown_name = false;  ///< the host's name leads to no address
};

/// A TCP connection of whole messages.
class Socket {
 public:
  explicit Socket(Descriptor fd) : fd_(std::move(fd)) {}
  /// Tries all addresses of the host once, each for up to `patience`; nothing, and why, where none of them answers.
  static std::optional<Socket> connect(const Endpoint& to, std::chrono::milliseconds patience, ConnectFailure& failure);

  /// Returns false if the other end is gone.
  bool send(std::span<const std::byte> bytes);
  /// Waits for all of `bytes`. Returns false if the other end is gone or silent for `patience` (below 0: wait forever).
  bool receive(std::span<std::byte> bytes, std::chrono::milliseconds patience = std::chrono::milliseconds(-1));
  /// Takes what there is, at least one byte and up to as many; 0 as above.
  std::size_t receive_some(std::span<std::byte> bytes, std::chrono::milliseconds patience);
  /// Wakes threads that wait for this socket, with an error.
  void shut_down();
  /// The numeric address of this end: that of the interface which leads to the other.
  std::string local_address() const;
  /// Releases the descriptor.
  Descriptor release() { return std::move(fd_); }

 private:
  Descriptor fd_;
};

/// Whether a numeric address, of IPv4 or IPv6, is one of this machine alone.
bool is_loopback(const std::string& address);

/// The other end of a connection, for messages.
std::string peer_of(int fd);

/// Lets calls on a socket wait for the other end, which they do not do on one that was accepted.
void let_wait(int fd);

/// Where connections come in. Nothing waits here: poll `sockets`.
class Listener {
 public:
  /// At all addresses of that host: the clients may not reach every one. Port 0: one that is free, at the first
  /// address. An empty host: all addresses of this machine. Errors: ErrorKind::usage where no address can be had, or
  /// one has this port in use.
  explicit Listener(const Endpoint& at);
  std::uint16_t port() const { return port_; }
  const std::vector<Descriptor>& sockets() const { return sockets_; }
  /// The next connection of one of them, which nothing waits for either; an empty one where there is none, and errno
  /// says why.
  static Descriptor accept(const Descriptor& socket);

 private:
  std::vector<Descriptor> sockets_;
  std::uint16_t port_ = 0;
};

}  // namespace qtrain
