#pragma once
#include <atomic>

#include "core/http/server.h"
#include "core/http/socket_stream.h"

namespace qtrain::http {

/// Serves one client connection.
class Connection {
 public:
  /// What a connection uses of its server. Once `ending`, no more requests are read.
  struct Place {
    const Limits& limits;
    const Handler& handler;
    const std::atomic<bool>& ending;
  };
  /// Shuts the socket down at the end, but does not own it.
  Connection(int socket, const Place& place);

  /// Answers requests until the connection ends.
  void answer_all();
  /// Replies that there are too many connections.
  void turn_away();

 private:
  enum class Then : std::uint8_t { stay, close };
  Then answer_one();
  Then after(const Request& request) const;
  void receive_body(const Request& request);
  Then send(const Reply& reply, const Request& request, Then then);
  bool send_stream(const Reply& reply, const Request& request, Then then);
  void send_problem(const Problem& problem, Request& request);
  void close_gently();

  int socket_;
  Place place_;
  SocketStream stream_;
  RequestReader reader_;
  bool last_ = false;  ///< no request is read after the current one
};

}  // namespace qtrain::http
