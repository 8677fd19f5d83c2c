#pragma once
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dist/socket.h"

namespace qtrain {

/// Where the ranks of a run find each other: names and values in the memory of one process, which all ranks set and
/// wait for over TCP.
class StoreServer {
 public:
  /// Serves until it is gone, which waits a little for clients to leave: they may have to ask why a run ends.
  /// `attempt`: how often the run was started before. Errors: those of Listener.
  explicit StoreServer(const Endpoint& at, int attempt = 0);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  std::uint16_t port() const { return listener_.port(); }

 private:
  struct Client {
    explicit Client(Descriptor fd) : socket(std::move(fd)) {}
    Socket socket;
    std::thread thread;
    bool waits = false, ended = false;  ///< for a value that nobody has set yet; it has left
    std::string stays = {};             ///< kStays of its rank: it may leave only where that was taken back
  };
  void accept_all();
  void reap();
  void serve(Client& client);
  void forget_before(std::string_view key);
  std::optional<std::string> wait_for(Client& client, const std::string& key, std::chrono::milliseconds patience);

  Listener listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool ending_ = false;
  std::list<Client> clients_;
  std::thread acceptor_;
};

/// A connection that sets a key with this beginning says that its process stays until another one sets it again. Where
/// it ends before that, kMissing is set.
inline constexpr std::string_view kStays = "stays/";
inline constexpr const char* kMissing = "missing";
/// Keys of questions and of answers to them, "alarm/N" and "answer/N/RANK": those of the last rounds are kept.
inline constexpr std::string_view kAlarms = "alarm/", kAnswers = "answer/";

/// The store as a rank sees it; safe to call from several threads. Errors: ErrorKind::peer where the server is gone.
class Store {
 public:
  /// Waits up to `patience` for a server of this attempt: that of an earlier one may still be ending, or not know yet
  /// that it has to.
  Store(const Endpoint& server, std::chrono::milliseconds patience, int attempt = 0);

  void set(const std::string& key, const std::string& value);
  /// Waits until somebody has set it; nothing after `patience`.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience);

  /// How long a server may take to answer, beside what it waits for.
  void set_grace(std::chrono::milliseconds grace) { grace_ = grace; }
  /// Who the server is, for messages.
  void set_keeper(std::string keeper) { keeper_ = std::move(keeper); }
  /// Ends calls of other threads with an error, now and later.
  void shut_down() { socket_.shut_down(); }
  const Endpoint& server() const { return server_; }
  /// Of this machine, as the server sees it.
  std::string local_address() const { return socket_.local_address(); }

 private:
  std::optional<std::string> attempt_there();
  std::optional<std::string> ask(const std::string& request, std::chrono::milliseconds patience);

  Endpoint server_;
  std::string keeper_ = "the process";
  std::chrono::milliseconds grace_{10'000};
  std::mutex mutex_;
  Socket socket_;
};

}  // namespace qtrain
