#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "dist/doorkeeper.h"
#include "dist/store_request.h"

namespace qtrain {

/// Where the processes of a run meet, and the secret by which they authenticate each other.
struct Meeting {
  Endpoint at;
  RankSecret secret = RankSecret::random();
  int attempt = 0;  ///< how often the run was started before
  /// Receives messages about what they wait for and who was turned away.
  std::function<void(const std::string&)> say = {};

  /// The same for another connection of a process that tells these things already.
  Meeting in_silence() const { return {.at = at, .secret = secret, .attempt = attempt}; }
};

/// Where the ranks of a run find each other: names and values in the memory of one process, which all ranks set and
/// wait for over TCP. Nobody is heard who does not know the secret; names, values and their number are bounded.
class StoreServer {
 public:
  /// Serves until it is gone, which waits a little for clients to leave: they may have to ask why a run ends.
  /// Errors: those of Listener.
  explicit StoreServer(const Meeting& meeting);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  std::uint16_t port() const { return door_.port(); }
  /// Why no more connections can be accepted, if so.
  std::optional<Error> failure();

 private:
  struct Client {
    explicit Client(Socket s) : socket(std::move(s)) {}
    Socket socket;
    std::thread thread;
    bool idles = false, ended = false;  ///< waits for what others may do some day; has left
    std::string stays = {};             ///< kStays of its rank: it may leave only where that was taken back
  };
  void accept_all();
  void reap();
  void serve(Client& client);
  void forget_before(std::string_view key);
  using Values = std::map<std::string, std::string>;
  Values::iterator erase(Values::iterator it);
  bool put(const std::string& key, std::string value);
  bool set(Client& client, StoreRequest request);
  std::optional<std::string> wait_for(Client& client, const std::string& key, std::chrono::milliseconds patience);

  Doorkeeper door_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Values values_;
  std::size_t bytes_ = 0;  ///< of all names and values
  std::optional<Error> failure_;
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
  Store(const Meeting& meeting, std::chrono::milliseconds patience);

  void set(const std::string& key, const std::string& value);
  /// Waits until the key is set; returns nothing after `patience`.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience);

  /// How long a server may take to answer, beside what it waits for.
  void set_grace(std::chrono::milliseconds grace) { grace_ = grace; }
  /// Describes the server in messages.
  void set_keeper(std::string keeper) { keeper_ = std::move(keeper); }
  /// Ends current and later calls of other threads with an error.
  void shut_down() { socket_.shut_down(); }
  const Meeting& meeting() const { return meeting_; }
  /// The address of this machine as the server sees it.
  std::string local_address() const { return socket_.local_address(); }

 private:
  Socket connect(std::chrono::milliseconds patience) const;
  std::optional<std::string> attempt_there();
  std::optional<std::string> ask(const StoreRequest& request);

  Meeting meeting_;
  std::string keeper_ = "the process";
  std::chrono::milliseconds grace_{10'000};
  std::mutex mutex_;
  Socket socket_;
};

}  // namespace qtrain
