#include "dist/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "core/error.h"
#include "core/os/loopback.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct FreeAddresses {
  void operator()(addrinfo* a) const { freeaddrinfo(a); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

enum class Side : std::uint8_t { server, client };

// Returns null and sets `why` if the name cannot be resolved.
Addresses addresses_of(const Endpoint& e, Side side, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (side == Side::server ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string host = plain_host(e.host);
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(e.port).c_str(), &hints, &found);
  if (error != 0) why = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
  return Addresses(error == 0 ? found : nullptr);
}

Descriptor open_socket(const addrinfo& a) {
  return Descriptor(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol));
}

void disable_send_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Whether one of `events` occurs before `end`.
bool is_ready(int fd, short events, Clock::time_point end) {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    pollfd waited{.fd = fd, .events = events, .revents = 0};
    const int ready =
        ::poll(&waited, 1, static_cast<int>(std::clamp<long long>(left, 0, std::numeric_limits<int>::max())));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

// Returns 0 or an errno.
int connect_to(int fd, const addrinfo& a, milliseconds patience) {
  if (::connect(fd, a.ai_addr, a.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!is_ready(fd, POLLOUT, Clock::now() + patience)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) return 0;
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<sockaddr_in&>(at).sin_port);
}

void set_port(addrinfo& a, std::uint16_t port) {
  (a.ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(a.ai_addr)->sin6_port
                           : reinterpret_cast<sockaddr_in*>(a.ai_addr)->sin_port) = htons(port);
}

// Whether the address occurs earlier in the list.
bool is_twice(const addrinfo* list, const addrinfo* a) {
  for (; list != a; list = list->ai_next)
    if (list->ai_addrlen == a->ai_addrlen && std::memcmp(list->ai_addr, a->ai_addr, a->ai_addrlen) == 0) return true;
  return false;
}

// Returns 0 or an errno. An IPv6 socket accepts no IPv4 connections; those have their own socket.
int listen_at(int fd, const addrinfo& a) {
  constexpr int kBacklog = 1024;
  const int on = 1;
  if (fd < 0) return errno;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (a.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  return ::bind(fd, a.ai_addr, a.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0 ? 0 : errno;
}

using NameOfEnd = int (*)(int, sockaddr*, socklen_t*);

Endpoint end_of(int fd, NameOfEnd name) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  auto* address = reinterpret_cast<sockaddr*>(&at);
  if (name(fd, address, &length) != 0) return {};
  ::getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return {.host = host, .port = static_cast<std::uint16_t>(std::strtoul(port, nullptr, 10))};
}

std::string text_of(const addrinfo& a) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(a.ai_addr, a.ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

}  // namespace

std::string Endpoint::text() const {
  const bool bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format("{}{}{}:{}", bare_ipv6 ? "[" : "", host, bare_ipv6 ? "]" : "", port);
}

std::optional<Socket> Socket::connect(const Endpoint& to, milliseconds patience, ConnectFailure& failure) {
  const Addresses found = addresses_of(to, Side::client, failure.why);
  failure.unknown_name = !found;
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Descriptor fd = open_socket(*a);
    const int error = fd.get() < 0 ? errno : connect_to(fd.get(), *a, patience);
    if (error == 0) {
      disable_send_delay(fd.get());
      make_blocking(fd.get());
      return Socket(std::move(fd));
    }
    failure.why = std::strerror(error);
  }
  return {};
}

bool Socket::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

bool Socket::receive(std::span<std::byte> bytes, milliseconds patience) {
  const auto end = Clock::now() + patience;
  while (!bytes.empty()) {
    const auto left = patience.count() < 0 ? patience : std::chrono::ceil<milliseconds>(end - Clock::now());
    const std::size_t n = receive_some(bytes, patience.count() < 0 ? patience : std::max(left, milliseconds(0)));
    if (n == 0) return false;
    bytes = bytes.subspan(n);
  }
  return true;
}

std::size_t Socket::receive_some(std::span<std::byte> bytes, milliseconds patience) {
  if (patience.count() >= 0 && !is_ready(fd_.get(), POLLIN, Clock::now() + patience)) return 0;
  while (true) {
    const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (n >= 0 || errno != EINTR) return static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

void Socket::shut_down() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

std::string Socket::local_address() const {
  return end_of(fd_.get(), ::getsockname).host;
}

std::string Socket::remote_address() const {
  return end_of(fd_.get(), ::getpeername).host;
}

std::string scope_of(const std::string& address) {
  const auto at = address.find('%');
  return at == std::string::npos ? "" : address.substr(at + 1);
}

std::string without_scope(const std::string& address) {
  return address.substr(0, address.find('%'));
}

bool has_address(const std::string& host, const std::string& address) {
  std::string why;
  const Addresses found = addresses_of({.host = host}, Side::client, why);
  for (const addrinfo* a = found.get(); a; a = a->ai_next)
    if (text_of(*a) == address) return true;
  return false;
}

std::string peer_of(int fd) {
  return end_of(fd, ::getpeername).text();
}

void make_blocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

Listener::Listener(const Endpoint& at) {
  constexpr int kTries = 20;  // a port that is free at one address may be in use at another
  Problem problem = listen(at);
  for (int i = 1; at.port == 0 && problem.in_use && i < kTries; ++i) problem = listen(at);
  if (sockets_.empty() || problem.in_use)
    fail(ErrorKind::usage,
         {.cause = fmt::format("ranks cannot meet at {} ({})", at.text(), problem.why),
          .remedy = "set master_port to a port that is free, master_addr to an address of this machine"});
}

Listener::Problem Listener::listen(const Endpoint& at) {
  Problem problem;
  sockets_.clear();
  port_ = at.port;
  const Addresses found = addresses_of(at, Side::server, problem.why);
  for (addrinfo* a = found.get(); a; a = a->ai_next) {
    if (is_twice(found.get(), a)) continue;
    set_port(*a, port_);
    Descriptor fd = open_socket(*a);
    const int error = listen_at(fd.get(), *a);
    set_port(*a, at.port);  // as is_twice expects
    if (error != 0) {
      if (!problem.in_use) problem.why = std::strerror(error);
      problem.in_use |= error == EADDRINUSE;
      continue;
    }
    port_ = port_of(fd.get());
    sockets_.push_back(std::move(fd));
  }
  return problem;
}

std::vector<std::string> Listener::addresses() const {
  std::vector<std::string> all;
  for (const Descriptor& socket : sockets_) all.push_back(end_of(socket.get(), ::getsockname).host);
  return all;
}

Descriptor Listener::accept(const Descriptor& socket) {
  Descriptor fd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.get() >= 0) disable_send_delay(fd.get());
  return fd;
}

}  // namespace qtrain
