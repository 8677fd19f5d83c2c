#pragma once
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace qtrain::serve {

class SocketStream;

struct HttpLimits {
  std::int64_t connections = 64;
  std::size_t body_bytes = std::size_t{8} << 20;
  std::chrono::milliseconds header_time{10'000};  ///< in which all headers have come
  std::chrono::milliseconds body_time{30'000};    ///< and then the body
  std::chrono::milliseconds idle_time{30'000};    ///< between requests of a connection
  std::chrono::milliseconds write_time{15'000};   ///< in which a client takes some of what it is sent
};

/// What a request has in place of a Content-Encoding: its body comes as it is.
inline constexpr const char* kUnreadEncoding = "X-Unread-Encoding";

/// The server of cpp-httplib with limits on times and on the number of connections, and with a look at clients that
/// have gone.
class HttpServer : public httplib::Server {
 public:
  explicit HttpServer(const HttpLimits& limits);

  /// A usage error where the address cannot be had; port 0 takes a free one. Returns the port.
  int bind(const std::string& host, int port);
  /// Whether the client of a request has closed its connection.
  bool is_gone(const httplib::Request& request) const;
  /// Takes connections until `wind_up`.
  void listen();
  /// Lets connections end after the request that they are at, and takes no more. For a server that listens, or is about
  /// to.
  void wind_up();

 private:
  struct Place;
  bool process_and_close_socket(socket_t sock) override;
  bool answer_all(SocketStream& stream);
  void prepare(httplib::Request& request) const;

  HttpLimits limits_;
  std::atomic<bool> winding_up_ = false, ended_ = false;
  std::atomic<std::int64_t> open_ = 0;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int> sockets_;  ///< of those that are answered, by address
};

/// Whether a host is this machine by a name that leads nowhere else.
bool is_loopback(const std::string& host);

}  // namespace qtrain::serve
