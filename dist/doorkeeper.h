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

/// Accepts connections at a port from peers that know the secret of the run. Others are turned away when their
/// handshake fails or takes too long, and hold neither a thread nor growing memory; if too many connect, those that
/// sent nothing are dropped first.
class Doorkeeper {
 public:
  struct Options {
    Endpoint at;
    Handshake::Options handshake;
    /// Receives messages about the first strangers.
    std::function<void(const std::string&)> say = {};
    /// Whether all peers have come. From then on, a lack of file descriptors is no error. Called by the thread of
    /// `next`.
    std::function<bool()> all_are_here = {};
  };
  /// Throws as Listener does.
  explicit Doorkeeper(const Options& options);
  std::uint16_t port() const { return listener_.port(); }
  std::vector<std::string> addresses() const { return listener_.addresses(); }

  using Clock = std::chrono::steady_clock;
  struct Guest {
    Socket socket;
    std::uint32_t number;  ///< as announced by the peer
  };
  /// The next authenticated peer; nothing at `end` or once closed. Throws ErrorKind::usage if the process has been out
  /// of file descriptors for a while and peers are missing.
  std::optional<Guest> next(Clock::time_point end);
  /// Ends current and later calls of `next`. Thread-safe.
  void close();
  /// "; 2 strangers were turned away at port 29500, the last one from 10.0.0.7:4242"; empty if there were none.
  std::string strangers() const;

 private:
  struct Visitor {
    Descriptor fd;
    Handshake handshake;
    Clock::time_point leaves;  ///< deadline of its handshake
    bool has_spoken = false;
  };
  void wait(Clock::time_point end);
  void take_in();
  void accept_from(const Descriptor& socket);
  void miss_descriptor(int error);
  bool all_are_here() const { return options_.all_are_here && options_.all_are_here(); }
  void make_room();
  std::optional<Guest> receive(Visitor& visitor);
  bool send(const Visitor& visitor, const std::string& text) const;
  void turn_away(Visitor& visitor, const char* why);

  Options options_;
  Listener listener_;
  Descriptor close_event_;                              ///< readable once closed
  std::list<Visitor> visitors_;                         ///< in order of arrival
  std::optional<Clock::time_point> misses_since_ = {};  ///< since when no descriptor is free
  int turned_away_ = 0;
  std::string last_;  ///< address of the last one
};

}  // namespace qtrain
