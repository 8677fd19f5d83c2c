#include "dist/socket.h"

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
#include <thread>

#include "core/error.h"
#include "core/stop.h"

namespace qtrain {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeAddresses {
  void operator()(addrinfo* a) const { freeaddrinfo(a); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

enum class Side : std::uint8_t { server, client };

// Null where the name is not known.
Addresses addresses_of(const Endpoint& e, Side side) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (side == Side::server ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const char* host = e.host.empty() ? nullptr : e.host.c_str();
  if (getaddrinfo(host, std::to_string(e.port).c_str(), &hints, &found) != 0) return nullptr;
  return Addresses(found);
}

Descriptor open_socket(const addrinfo& a) {
  return Descriptor(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC, a.ai_protocol));
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Descriptor connected(const Endpoint& to, std::string& why) {
  const Addresses found = addresses_of(to, Side::client);
  if (!found) why = "no such host";
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Descriptor fd = open_socket(*a);
    if (fd.get() >= 0 && ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
    why = std::strerror(errno);
  }
  return {};
}

std::uint16_t port_of(int fd) {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) return 0;
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<sockaddr_in&>(at).sin_port);
}

}  // namespace

Socket Socket::connect(const Endpoint& to, std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  std::string why;
  while (true) {
    Descriptor fd = connected(to, why);
    if (fd.get() >= 0) {
      send_at_once(fd.get());
      return Socket(std::move(fd));
    }
    if (Clock::now() >= end)
      fail(ErrorKind::peer, {.cause = fmt::format("nothing answers at {} ({})", to.text(), why),
                             .remedy = "rank 0 has to run there; check master_addr, master_port and the firewall"});
    throw_if_stopped();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
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

bool Socket::receive(std::span<std::byte> bytes, std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  while (!bytes.empty()) {
    if (patience.count() >= 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd waited{.fd = fd_.get(), .events = POLLIN, .revents = 0};
      const int ready =
          ::poll(&waited, 1, static_cast<int>(std::clamp<long long>(left, 0, std::numeric_limits<int>::max())));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return false;
    }
    const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

void Socket::shut_down() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

std::string Socket::local_address() const {
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  char host[NI_MAXHOST] = "";
  auto* address = reinterpret_cast<sockaddr*>(&at);
  if (::getsockname(fd_.get(), address, &length) == 0)
    ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

Listener::Listener(const Endpoint& at) {
  std::string why = "no such host";
  const Addresses found = addresses_of(at, Side::server);
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Descriptor fd = open_socket(*a);
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd.get(), 1024) == 0) {
      port_ = port_of(fd.get());
      fd_ = std::move(fd);
      return;
    }
    why = std::strerror(errno);
  }
  fail(ErrorKind::usage,
       {.cause = fmt::format("ranks cannot meet at {} ({})", at.text(), why),
        .remedy = "set master_port to a port that is free, master_addr to an address of this machine"});
}

Descriptor Listener::accept() {
  while (true) {
    Descriptor fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() >= 0) send_at_once(fd.get());
    if (fd.get() >= 0 || errno == EINVAL) return fd;                                  // the latter after shut_down
    std::this_thread::sleep_for(std::chrono::milliseconds(errno == EINTR ? 0 : 20));  // too many open files, perhaps
  }
}

void Listener::shut_down() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

}  // namespace qtrain
