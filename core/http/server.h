#pragma once
#include <atomic>
#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "core/http/message.h"
#include "core/http/request_reader.h"
#include "core/os/descriptor.h"

namespace qtrain::http {

struct Limits {
  std::int64_t connections = 64;
  std::size_t body_bytes = std::size_t{8} << 20;
  std::chrono::milliseconds header_time{10'000};  ///< in which all headers have come
  std::chrono::milliseconds body_time{30'000};    ///< and then the body
  std::chrono::milliseconds idle_time{30'000};    ///< between requests of a connection
  std::chrono::milliseconds write_time{15'000};   ///< in which a client takes some of what it is sent
};

/// What a server is for. Called by the threads of all connections.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Looks at a request of which only the head has been read: a reply refuses it, and its body is not read.
  virtual std::optional<Reply> refuse(const Request& head) const = 0;
  virtual Reply answer(const Request& request) const = 0;
  /// The reply that tells a client what is wrong with what it has sent, or with the server.
  virtual Reply tell(const Problem& problem) const = 0;
};

/// Answers HTTP/1.1 and HTTP/1.0 at one address, each connection on a thread of its own. A connection ends after every
/// request that breaks the rules, that is refused before its body was read, or that says so.
class Server {
 public:
  explicit Server(const Limits& limits) : limits_(limits) {}

  /// Takes the address; clients wait from then on. Port 0 takes a free one. Returns the port. Throws std::system_error.
  int bind(const std::string& host, int port);
  /// Takes connections until `wind_up`, and returns once the last has ended.
  void listen(const Handler& handler);
  /// Lets connections end after the request that they are at, and takes no more.
  void wind_up() { ending_ = true; }

 private:
  struct Worker {
    Descriptor socket;
    bool is_answered = true;  ///< rather than turned away
    std::atomic<bool> done = false;
    std::thread thread;
  };
  void take(Descriptor socket, const Handler& handler);
  void end_finished();

  Limits limits_;
  Descriptor listening_;
  std::list<Worker> workers_;  ///< of the thread that listens
  std::atomic<bool> ending_ = false;
};

}  // namespace qtrain::http
