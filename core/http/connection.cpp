#include "core/http/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>

namespace qtrain::http {
namespace {

using Clock = SocketStream::Clock;

constexpr std::size_t kMaxRequests = 10'000;  // per connection

std::string head_of(const Reply& reply, bool closes) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, reason_of(reply.status));
  if (closes) text += "Connection: close\r\n";
  text += fmt::format("Content-Type: {}\r\n", reply.type);
  for (const Header& h : reply.headers) text += fmt::format("{}: {}\r\n", h.name, h.value);
  return text;
}

}  // namespace

Connection::Connection(int socket, const Place& place)
    : socket_(socket),
      place_(place),
      stream_(socket, place.limits.write_time, place.ending),
      reader_(stream_, {.head = {}, .body = place.limits.body_bytes}) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void Connection::answer_all() {
  auto idle = place_.limits.header_time;
  for (std::size_t requests = 0; requests < kMaxRequests; ++requests) {
    last_ = requests + 1 == kMaxRequests;
    stream_.read_until(Clock::now() + idle);
    if (!reader_.has_more() && !stream_.wait()) break;
    if (answer_one() == Then::close) break;
    idle = place_.limits.idle_time;
  }
}

// Waits a moment for the request, because the answer depends on its method.
void Connection::turn_away() {
  constexpr std::chrono::milliseconds kPatience{100};
  Request request;
  stream_.read_until(Clock::now() + kPatience);
  try {
    reader_.read_head(request);
  } catch (const std::runtime_error&) {  // it is refused anyway
  } catch (const SourceEnded&) {
  }
  send_problem({503, "there are too many connections: try again later"}, request);
}

Connection::Then Connection::after(const Request& request) const {
  return keeps_connection(request) && !place_.ending && !last_ ? Then::stay : Then::close;
}

Connection::Then Connection::answer_one() {
  Request request;
  request.peer = peer_of(socket_);
  request.is_gone = [socket = socket_] { return has_closed(socket); };
  try {
    stream_.read_until(Clock::now() + place_.limits.header_time);
    reader_.read_head(request);
    if (const auto refusal = place_.handler.refuse(request))
      return send(*refusal, request, reader_.plan().has_bytes() ? Then::close : after(request));
    receive_body(request);
    return send(place_.handler.answer(request), request, after(request));
  } catch (const Problem& problem) {
    send_problem(problem, request);
  } catch (const SourceEnded&) {
    // Nothing is sent if no request has begun: a proxy would take it for the answer to the next one.
    if (stream_.timed_out() && (reader_.has_more() || !request.method.empty()))
      send_problem({408, "the request did not arrive in time"}, request);
  } catch (const std::exception&) {  // within a reply, which stays incomplete
  }
  return Then::close;
}

void Connection::receive_body(const Request& request) {
  const BodyPlan& plan = reader_.plan();
  if (request.has("expect") && !equal_without_case(request.header("expect"), "100-continue"))
    throw Problem(417, "the only supported expectation is 100-continue");
  if (plan.length.value_or(0) > place_.limits.body_bytes) throw Problem(413, "the body is too large");
  if (!plan.is_announced()) {
    if (request.method == "POST") throw Problem(411, "a POST needs Content-Length or a chunked body");
    return;
  }
  if (!plan.has_bytes()) return;
  stream_.read_until(Clock::now() + place_.limits.body_time);
  if (request.has("expect") && request.version >= 11 && !reader_.has_more())
    stream_.write("HTTP/1.1 100 Continue\r\n\r\n");
  reader_.read_body();
}

// Returns what to do with the connection, which is closed if the client does not accept the whole reply.
Connection::Then Connection::send(const Reply& reply, const Request& request, Then then) {
  stream_.begin_answer();
  if (reply.stream && request.method != "HEAD") return send_stream(reply, request, then) ? then : Then::close;
  std::string text = head_of(reply, then == Then::close);
  text += fmt::format("Content-Length: {}\r\n\r\n", reply.body.size());
  if (request.method != "HEAD") text += reply.body;
  return stream_.write(text) ? then : Then::close;
}

// Sends the body in chunks; for clients of HTTP/1.0 it ends with the connection.
bool Connection::send_stream(const Reply& reply, const Request& request, Then then) {
  const bool chunked = request.version >= 11;
  std::string head = head_of(reply, then == Then::close);
  head += chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  bool good = stream_.write(head);
  const bool whole = reply.stream([&](std::string_view piece) {
    if (piece.empty() || !good) return good;
    good = stream_.write(chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::string(piece));
    return good;
  });
  if (!whole) return false;  // without the last chunk, so that the client can tell that the body is incomplete
  if (good && chunked) good = stream_.write("0\r\n\r\n");
  return good;
}

// `request` is what could be read of it: the answer to a HEAD request must not have a body, even if the request
// is not valid.
void Connection::send_problem(const Problem& problem, Request& request) {
  if (request.method.empty() && reader_.is_at("HEAD ")) request.method = "HEAD";
  send(place_.handler.reply_to(problem), request, Then::close);
}

// Keeps reading for a moment, because closing a socket with unread data would discard the reply.
void Connection::close_gently() {
  constexpr std::chrono::milliseconds kLinger{300};
  ::shutdown(socket_, SHUT_WR);
  stream_.read_until(Clock::now() + kLinger);
  for (std::array<char, 4096> bytes; stream_.read(bytes.data(), bytes.size()) > 0;) continue;
}

}  // namespace qtrain::http
