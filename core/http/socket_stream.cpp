#include "core/http/socket_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace qtrain::http {
namespace {

using Clock = SocketStream::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{100};  // how often to check whether the server is ending
constexpr double kMinRate = 64;              // bytes per millisecond that a client must accept

}  // namespace

bool has_closed(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::string peer_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof text);
  else if (storage.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text, sizeof text);
  return text;
}

bool SocketStream::is_ready(Direction direction, Clock::time_point end) const {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const bool ends = ending_ || left <= kCheckInterval;
    pollfd entry{socket_, static_cast<short>(direction == Direction::in ? POLLIN : POLLOUT), 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp(left, milliseconds{0}, kCheckInterval).count()));
    if (ready > 0) return true;
    if (ends || (ready < 0 && errno != EINTR)) return false;
  }
}

ssize_t SocketStream::read(char* data, std::size_t size) {
  if (ending_) end_ = std::min(end_, Clock::now() + kCheckInterval);  // counted from the first read after `ending_`
  // The time is checked too, because a client that sends byte by byte is always ready.
  while (Clock::now() < end_ && is_ready(Direction::in, end_)) {
    const ssize_t n = ::recv(socket_, data, size, MSG_DONTWAIT);
    if (n >= 0 || (errno != EINTR && errno != EAGAIN)) return n;
  }
  timed_out_ = true;
  return -1;
}

bool SocketStream::write(std::string_view bytes) {
  const auto begin = Clock::now();
  const auto most = patience_ + Milliseconds(static_cast<double>(bytes.size()) / kMinRate);
  const auto end = begin + std::chrono::ceil<Clock::duration>(most);
  while (!bytes.empty()) {
    if (!is_ready(Direction::out, end)) return false;
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  // What a client lost with one piece, it lacks for the next ones.
  patience_ = std::min<Milliseconds>(write_time_, most - (Clock::now() - begin));
  return true;
}

}  // namespace qtrain::http
