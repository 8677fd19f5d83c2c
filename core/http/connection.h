#pragma once
#include <atomic>

#include "core/http/server.h"
#include "core/http/socket_stream.h"

namespace qtrain::http {

/// One client of a server, from its first byte to its last.
class Connection {
 public:
  /// A server that ends takes no more requests. The socket is another's; it is shut down in the end.
  struct Place {
    const Limits& limits;
    const Handler& handler;
    const std::atomic<bool>& ending;
  };
  Connection(int socket, const Place& place);

  /// Answers one request after the other until the connection ends.
  void answer_all();
  /// Says that there are too many connections.
  void turn_away();

 private:
  enum class Then : std::uint8_t { stay, close };
  Then answer_one();
  Then after(const Request& request) const;
  void receive_body(const Request& request);
  Then send(const Reply& reply, const Request& request, Then then);
  bool send_stream(const Reply& reply, const Request& request, Then then);
  void tell(const Problem& problem);
  void close_gently();

  int socket_;
  Place place_;
  SocketStream stream_;
  RequestReader reader_;
  bool last_ = false;  ///< no request is read after the one that is answered
};

}  // namespace qtrain::http
