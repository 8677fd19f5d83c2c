#include "core/http/server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "core/http/connection.h"
#include "core/http/socket_stream.h"
#include "core/memory_reserve.h"

namespace qtrain::http {
namespace {

constexpr std::int64_t kRefusers = 16;  // connections beyond the limit that are refused at a time
constexpr int kLeastBacklog = 128;
constexpr std::chrono::milliseconds kAcceptInterval{50};

Descriptor listen_at(const addrinfo& at, int backlog) {
  Descriptor socket(::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol));
  if (socket.get() < 0) return {};
  // SO_REUSEPORT is not set, because two servers on one port would share its clients.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(socket.get(), backlog) != 0) {
    const int why = errno;
    socket.close();
    errno = why;
    return {};
  }
  return socket;
}

int port_of(int socket) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw std::system_error(errno, std::generic_category());
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(at).sin_port);
}

}  // namespace

int Server::bind(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw std::system_error(EADDRNOTAVAIL, std::generic_category());
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  const auto backlog = static_cast<int>(std::clamp<std::int64_t>(limits_.connections, kLeastBacklog, 1 << 16));
  for (const addrinfo* at = found; at && listening_.get() < 0; at = at->ai_next) listening_ = listen_at(*at, backlog);
  if (listening_.get() < 0) throw std::system_error(errno, std::generic_category());
  return port_of(listening_.get());
}

void Server::end_finished() {
  std::erase_if(workers_, [](Worker& worker) {
    if (!worker.done) return false;
    worker.thread.join();
    return true;
  });
}

// Whether fewer connections than allowed are answered. Those whose clients have closed them do not count, although
// their threads may not have noticed yet: a client may close one and open the next.
bool Server::has_place() const {
  std::vector<pollfd> open;
  for (const Worker& worker : workers_)
    if (worker.is_answered && !worker.leaving) open.push_back({worker.socket.get(), POLLRDHUP, 0});
  if (std::ssize(open) < limits_.connections) return true;
  ::poll(open.data(), open.size(), 0);
  return std::ranges::count(open, 0, &pollfd::revents) < limits_.connections;
}

// The socket is closed by the thread that listens, which may be looking at it.
void Server::serve(Worker& worker, const Handler& handler) const {
  try {
    Connection connection(worker.socket.get(), {limits_, handler, ending_});
    if (worker.is_answered)
      connection.answer_all();
    else
      connection.turn_away();
    worker.leaving = true;
    connection.close_gently();
  } catch (const std::exception&) {  // no memory is left, not even for an error
  }
  worker.leaving = true;
  worker.done = true;
}

void Server::take(Descriptor socket, const Handler& handler) {
  const bool is_answered = has_place();
  Worker& worker = workers_.emplace_back();
  worker.is_answered = is_answered;
  worker.socket = std::move(socket);
  try {
    worker.thread = std::thread([this, &handler, &worker] { serve(worker, handler); });
  } catch (const std::exception&) {  // no thread or memory is left: drop the connection
    workers_.pop_back();
  }
}

void Server::accept_one(const Handler& handler) {
  Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.get() >= 0)
    take(std::move(socket), handler);
  else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
    std::this_thread::sleep_for(kAcceptInterval);
}

void Server::listen(const Handler& handler) {
  while (!ending_) {
    end_finished();
    pollfd entry{listening_.get(), POLLIN, 0};
    // If there is no room even to refuse connections, further ones wait in the kernel's queue.
    const bool full = static_cast<std::int64_t>(workers_.size()) >= limits_.connections + kRefusers;
    reserve_memory_for_errors();  // a request may have used it
    if (full || ::poll(&entry, 1, static_cast<int>(kAcceptInterval.count())) <= 0) {
      if (full) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    try {
      accept_one(handler);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kAcceptInterval);
    }
  }
  listening_.close();
  for (Worker& worker : workers_) worker.thread.join();
  workers_.clear();
}

}  // namespace qtrain::http
