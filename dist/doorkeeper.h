#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "dist/handshake.h"
#include "dist/socket.h"

namespace qtrain {

/// Lets in at a port who knows the secret of the run. Whoever else connects gets nowhere: it is turned away when its
/// handshake fails or takes too long, and holds neither a thread nor memory that grows; where too many are at the door,
/// those go first that have said nothing.
class Doorkeeper {
 public:
  struct Options {
    Endpoint at;
    Handshake::Options handshake;
    /// Told of the first strangers, for people.
    std::function<void(const std::string&)> say = {};
  };
  /// Errors: those of Listener.
  explicit Doorkeeper(const Options& options);
  std::uint16_t port() const { return listener_.port(); }

  using Clock = std::chrono::steady_clock;
  struct Guest {
    Socket socket;
    std::uint32_t number;  ///< that it has given itself
  };
  /// The next that has proved itself; nothing at `end`, or once closed. Errors: ErrorKind::usage where the process has
  /// had no descriptor left for a while.
  std::optional<Guest> next(Clock::time_point end);
  /// Ends `next`, now and later; from any thread.
  void close();
  /// "; 2 connections of strangers were turned away, the last one from 10.0.0.7:4242"; empty where there were none.
  std::string strangers() const;

 private:
  struct Visitor {
    Descriptor fd;
    Handshake handshake;
    Clock::time_point leaves;  ///< at the latest
    bool has_spoken = false;
  };
  void wait(Clock::time_point end);
  void take_in();
  void accept_from(const Descriptor& socket);
  void miss_descriptor(int error);
  void make_room();
  std::optional<Guest> hear(Visitor& visitor);
  bool send(const Visitor& visitor, const std::string& text) const;
  void turn_away(Visitor& visitor, const char* why);

  Options options_;
  Listener listener_;
  Descriptor bell_;
  std::list<Visitor> visitors_;                         ///< those that came first are first
  std::optional<Clock::time_point> misses_since_ = {};  ///< a descriptor
  int turned_away_ = 0;
  std::string last_;  ///< of those
};

}  // namespace qtrain
