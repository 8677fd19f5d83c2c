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
  std::string host;  ///< a name or an address; IPv6 addresses may be in brackets, and mapped ones mean IPv4
  std::uint16_t port = 0;

  /// "host:port", "[::1]:port"
  std::string text() const;
};

/// Why a connection failed.
struct ConnectFailure {
  std::string why;
  bool unknown_name = false;  ///< the host's name cannot be resolved
};

/// A TCP connection.
class Socket {
 public:
  explicit Socket(Descriptor fd) : fd_(std::move(fd)) {}
  /// Tries all addresses of the host once, each for up to `patience`. Returns nothing and sets `failure` if none of
  /// them answers.
  static std::optional<Socket> connect(const Endpoint& to, std::chrono::milliseconds patience, ConnectFailure& failure);

  /// Returns false if the other end is gone.
  bool send(std::span<const std::byte> bytes);
  /// Waits for all of `bytes`. Returns false if the other end is gone or silent for `patience` (below 0: wait forever).
  bool receive(std::span<std::byte> bytes, std::chrono::milliseconds patience = std::chrono::milliseconds(-1));
  /// Receives what is available, from one byte up to the size of `bytes`. Returns 0 where `receive` returns false.
  std::size_t receive_some(std::span<std::byte> bytes, std::chrono::milliseconds patience);
  /// Wakes threads that wait for this socket, with an error.
  void shut_down();
  /// The numeric address of this end: that of the interface which leads to the other.
  std::string local_address() const;
  /// The numeric address of the other end.
  std::string remote_address() const;
  /// Releases the descriptor.
  Descriptor release() { return std::move(fd_); }

 private:
  Descriptor fd_;
};

/// The part of a numeric address behind "%": the interface of a link-local IPv6 address, which only has a meaning on
/// this machine. Empty if there is none.
std::string scope_of(const std::string& address);
/// The address without that part.
std::string without_scope(const std::string& address);

/// Whether one of the addresses of a host is this numeric one. A name that cannot be resolved has none.
bool has_address(const std::string& host, const std::string& address);

/// The other end of a connection, for messages.
std::string peer_of(int fd);

/// Makes calls on a socket wait for the other end; accepted sockets do not at first.
void make_blocking(int fd);

/// Listens for connections. Its calls do not wait: poll `sockets`.
class Listener {
 public:
  /// Listens at all addresses of the host that this machine has, because clients may not reach every one. Port 0 means
  /// one that is free at all of them. An empty host means all addresses of this machine. Throws ErrorKind::usage if no
  /// address can be used, or the port is in use at one of them.
  explicit Listener(const Endpoint& at);
  std::uint16_t port() const { return port_; }
  const std::vector<Descriptor>& sockets() const { return sockets_; }
  /// The numeric addresses at which it listens.
  std::vector<std::string> addresses() const;
  /// Accepts the next connection of one of them, as a socket that does not wait. Returns an empty one and sets errno if
  /// there is none.
  static Descriptor accept(const Descriptor& socket);

 private:
  /// Why it does not listen; `in_use`: at one of the addresses.
  struct Problem {
    std::string why = {};
    bool in_use = false;
  };
  Problem listen(const Endpoint& at);

  std::vector<Descriptor> sockets_;
  std::uint16_t port_ = 0;
};

}  // namespace qtrain
