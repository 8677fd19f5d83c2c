#include "app/serve/socket_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace qtrain::serve {
namespace {

using Clock = SocketStream::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kAsk{100};  // how long nobody is asked whether to go on

milliseconds until(Clock::time_point end) {
  if (end == Clock::time_point::max()) return kAsk;
  return std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(end - Clock::now()));
}

// Whether a socket is ready in that time.
bool is_ready(int socket, short events, milliseconds time) {
  pollfd entry{socket, events, 0};
  int ready;
  do ready = ::poll(&entry, 1, static_cast<int>(time.count()));
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void address(int (*get)(int, sockaddr*, socklen_t*), int socket, std::string& ip, int& port) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (get(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return;
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
    ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    port = ntohs(in->sin_port);
  } else if (storage.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&storage);
    ::inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
    port = ntohs(in->sin6_port);
  }
  ip = text;
}

}  // namespace

bool has_closed(int socket) {
  char byte;
  const ssize_t n = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool SocketStream::wait(const std::function<bool()>& given_up) {
  if (has_buffered()) return true;
  while (!given_up() && Clock::now() < end_)
    if (is_ready(socket_, POLLIN, std::min(kAsk, until(end_)))) return true;
  return false;
}

bool SocketStream::is_readable() const {
  return has_buffered() || is_ready(socket_, POLLIN, milliseconds{0});
}

bool SocketStream::is_writable() const {
  return is_ready(socket_, POLLOUT, write_time_) && !has_closed(socket_);
}

ssize_t SocketStream::read(char* data, std::size_t size) {
  if (!has_buffered()) {
    while (!is_ready(socket_, POLLIN, until(end_)))
      if (end_ != Clock::time_point::max()) {
        timed_out_ = true;
        return -1;
      }
    if (Clock::now() >= end_) {  // a client that sends byte after byte
      timed_out_ = true;
      return -1;
    }
    ssize_t n;
    do n = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return n;
    begin_ = 0;
    count_ = static_cast<std::size_t>(n);
    read_something_ = true;
  }
  const std::size_t n = std::min(size, count_ - begin_);
  std::memcpy(data, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t SocketStream::write(const char* data, std::size_t size) {
  if (!is_ready(socket_, POLLOUT, write_time_)) return -1;
  ssize_t n;
  do n = ::send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  return n;
}

void SocketStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  address(::getpeername, socket_, ip, port);
}
void SocketStream::get_local_ip_and_port(std::string& ip, int& port) const {
  address(::getsockname, socket_, ip, port);
}

}  // namespace qtrain::serve
