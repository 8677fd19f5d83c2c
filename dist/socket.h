#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "core/descriptor.h"

namespace qtrain {

/// A place in the network, "host:port" in messages.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  std::string text() const { return host + ":" + std::to_string(port); }
};

/// A TCP connection of whole messages.
class Socket {
 public:
  explicit Socket(Descriptor fd) : fd_(std::move(fd)) {}
  /// Tries until there is an answer. Errors: ErrorKind::peer.
  static Socket connect(const Endpoint& to, std::chrono::milliseconds patience);

  /// False where the other end is gone.
  bool send(std::span<const std::byte> bytes);
  /// Waits for all of `bytes`; false where the other end is gone, or silent for `patience` (below 0: for ever).
  bool receive(std::span<std::byte> bytes, std::chrono::milliseconds patience = std::chrono::milliseconds(-1));
  /// Ends what waits for this socket in another thread.
  void shut_down();
  /// The numeric address of this end: that of the interface which leads to the other.
  std::string local_address() const;

 private:
  Descriptor fd_;
};

/// Where connections come in.
class Listener {
 public:
  /// Port 0: one that is free. Errors: ErrorKind::usage where the address cannot be had.
  explicit Listener(const Endpoint& at);
  std::uint16_t port() const { return port_; }
  /// The next connection; an empty one after `shut_down`.
  Descriptor accept();
  void shut_down();

 private:
  Descriptor fd_;
  std::uint16_t port_ = 0;
};

}  // namespace qtrain
