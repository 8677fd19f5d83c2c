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
  /// Does not own the socket.
  Connection(int socket, const Place& place);

  /// Answers requests until the last one, or until the client is gone.
  void answer_all();
  /// Replies that there are too many connections.
  void turn_away();
  /// Shuts the socket down after that, so that the client receives the last reply.
  void close_gently();

 private:
  enum class Then : std::uint8_t { stay, close };
  Then answer_one();
  Then after(const Request& request) const;
  void receive_body(const Request& request);
  Then send(const Reply& reply, const Request& request, Then then);
  bool send_stream(const Reply& reply, const Request& request, Then then);
  void send_problem(const Problem& problem, Request& request);

  int socket_;
  Place place_;
  SocketStream stream_;
  RequestReader reader_;
  bool last_ = false;  ///< no request is read after the current one
};

}  // namespace qtrain::http
