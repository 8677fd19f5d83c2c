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
  std::chrono::milliseconds header_time{10'000};  ///< time to receive all headers
  std::chrono::milliseconds body_time{30'000};    ///< time to receive the body after that
  std::chrono::milliseconds idle_time{30'000};    ///< between requests of a connection
  std::chrono::milliseconds write_time{15'000};   ///< time for a client to accept some of the data
};

/// Answers the requests of a server. Called by the threads of all connections.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Checks a request after its head is read. A reply refuses the request, and its body is not read.
  virtual std::optional<Reply> refuse(const Request& head) const = 0;
  virtual Reply answer(const Request& request) const = 0;
  /// The reply that explains a problem with the request or the server.
  virtual Reply reply_to(const Problem& problem) const = 0;
};

/// A server of HTTP/1.1 and HTTP/1.0 at one address, with a thread for each connection. It closes a connection after a
/// request that is invalid, that is refused before its body was read, or that asks for it.
class Server {
 public:
  explicit Server(const Limits& limits) : limits_(limits) {}

  /// Binds the address and queues clients from then on. Port 0 chooses a free one. Returns the port. Throws
  /// std::system_error.
  int bind(const std::string& host, int port);
  /// Accepts connections until `wind_up`, and returns once the last has ended.
  void listen(const Handler& handler);
  /// Lets each connection finish its current request, and accepts no more.
  void wind_up() { ending_ = true; }

 private:
  struct Worker {
    Descriptor socket;
    bool is_answered = true;            ///< rather than turned away
    std::atomic<bool> leaving = false;  ///< reads no more requests
    std::atomic<bool> done = false;
    std::thread thread;
  };
  void accept_one(const Handler& handler);
  void take(Descriptor socket, const Handler& handler);
  bool has_place() const;
  void serve(Worker& worker, const Handler& handler) const;
  void end_finished();

  Limits limits_;
  Descriptor listening_;
  std::list<Worker> workers_;  ///< used only by the thread that listens
  std::atomic<bool> ending_ = false;
};

}  // namespace qtrain::http
