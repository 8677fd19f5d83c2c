#include "app/serve/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <system_error>
#include <thread>

#include "app/serve/api_error.h"
#include "app/serve/socket_stream.h"
#include "core/error.h"

namespace qtrain::serve {
namespace {

using Clock = SocketStream::Clock;

constexpr std::size_t kMaxRequests = 10'000;  // of one connection
constexpr int kRefusers = 4;                  // threads that tell clients beyond the limit so

void say_and_close(SocketStream& stream, int status, const char* reason, const char* message) {
  const std::string body = dump_json(ApiError(status, {.message = message}).json());
  const std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status,
      reason, body.size(), body);
  stream.write(text.data(), text.size());
}

// What a client still sends is read for a moment: a socket that is closed before takes the answer with it.
void close_gently(int socket) {
  constexpr std::chrono::milliseconds kMoment{300};
  ::shutdown(socket, SHUT_WR);
  SocketStream rest(socket, kMoment);
  rest.read_until(Clock::now() + kMoment);
  for (char bytes[4096]; rest.read(bytes, sizeof bytes) > 0;) continue;
  ::close(socket);
}

}  // namespace

/// A connection's place among those that may be open.
struct HttpServer::Place {
  explicit Place(HttpServer& server) : server_(server), number_(++server.open_) {}
  ~Place() { --server_.open_; }
  bool is_free() const { return number_ <= server_.limits_.connections; }

 private:
  HttpServer& server_;
  std::int64_t number_;
};

HttpServer::HttpServer(const HttpLimits& limits) : limits_(limits) {
  set_payload_max_length(limits.body_bytes);
  set_keep_alive_timeout(std::chrono::duration_cast<std::chrono::seconds>(limits.idle_time).count());
  set_keep_alive_max_count(kMaxRequests);
  const auto threads = static_cast<std::size_t>(limits.connections + kRefusers);
  new_task_queue = [threads] { return std::make_unique<httplib::ThreadPool>(threads).release(); };
  // Not SO_REUSEPORT: two servers on one port would share its clients.
  set_socket_options([](socket_t sock) {
    const int yes = 1;
    ::setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

int HttpServer::bind(const std::string& host, int port) {
  const int bound = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
  const int why = errno;
  if (bound > 0) return bound;
  const bool in_use = why == EADDRINUSE;
  fail(ErrorKind::usage, {.cause = in_use ? "the port is in use"
                                          : "the server cannot listen there: " + std::generic_category().message(why),
                          .place = fmt::format("{}:{}", host, port),
                          .remedy = in_use ? "choose another one with --port, or 0 for any"
                                           : "choose an address of this machine (--host)"});
}

bool HttpServer::is_gone(const httplib::Request& request) const {
  const std::lock_guard lock(mutex_);
  const auto at = sockets_.find({request.remote_addr, request.remote_port});
  return at == sockets_.end() || has_closed(at->second);
}

void HttpServer::listen() {
  listen_after_bind();
  ended_ = true;
}

// What has not begun could not be stopped.
void HttpServer::wind_up() {
  winding_up_ = true;
  while (!is_running() && !ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stop();
}

// Bodies are JSON whatever a client calls them, as they come, and so are answers.
void HttpServer::prepare(httplib::Request& request) const {
  if (request.has_header("Content-Encoding")) request.headers.emplace(kUnreadEncoding, "");
  for (const char* name : {"Accept-Encoding", "Content-Encoding", "Range", "Expect"}) request.headers.erase(name);
  request.ranges.clear();
  if (request.headers.erase("Content-Type") > 0) request.headers.emplace("Content-Type", "application/json");
}

bool HttpServer::answer_all(SocketStream& stream) {
  auto idle = limits_.header_time;
  bool good = true, closed = false;
  for (std::size_t requests = 0; good && !closed && requests < kMaxRequests; ++requests) {
    stream.read_until(Clock::now() + idle);
    if (!stream.wait([&] { return winding_up_.load(); })) return true;
    stream.forget_what_was_read();
    stream.read_until(Clock::now() + limits_.header_time);
    good = process_request(stream, winding_up_, closed, [&](httplib::Request& request) {
      stream.read_until(Clock::now() + limits_.body_time);
      prepare(request);
    });
    if (stream.timed_out() && stream.read_something() && !good)
      say_and_close(stream, 408, "Request Timeout", "the request did not come in time");
    idle = limits_.idle_time;
  }
  return true;
}

bool HttpServer::process_and_close_socket(socket_t sock) {
  const Place place(*this);
  const int yes = 1;
  ::setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  SocketStream stream(sock, limits_.write_time);
  bool good = false;
  if (!place.is_free()) {
    say_and_close(stream, 503, "Service Unavailable", "too many connections: try again later");
  } else {
    std::pair<std::string, int> peer;
    stream.get_remote_ip_and_port(peer.first, peer.second);
    {
      const std::lock_guard lock(mutex_);
      sockets_[peer] = sock;
    }
    good = answer_all(stream);
    const std::lock_guard lock(mutex_);
    sockets_.erase(peer);
  }
  close_gently(sock);
  return good;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  return ::inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace qtrain::serve
