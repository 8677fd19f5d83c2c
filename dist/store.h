#pragma once
#include <atomic>
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

/// Where the processes of a run meet, and the secret with which they authenticate each other.
struct Meeting {
  Endpoint at;
  RankSecret secret = RankSecret::random();
  int attempt = 0;  ///< how often the run was started before
  int ranks = 0;    ///< number of ranks that meet; 0: unknown
  /// Receives messages about what the processes wait for and who was turned away.
  std::function<void(const std::string&)> say = {};

  std::function<void()> meanwhile = {};  ///< called while a process waits for the server; may throw

  /// The same without messages, for another connection of a process that already reports them.
  Meeting in_silence() const { return {.at = at, .secret = secret, .attempt = attempt, .meanwhile = meanwhile}; }
};

/// A key-value store in the memory of one process, through which the ranks of a run find each other: all ranks set keys
/// and wait for them over TCP. Clients must know the secret; the size and number of keys and values are limited.
class StoreServer {
 public:
  /// Serves until it is destroyed, which waits a little for clients to leave, because they may need to ask why a run
  /// ends. Throws as Listener does.
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
    bool is_idle = false, ended = false;  ///< waits for something that may take long; has left
    std::string stays = {};               ///< kStays key of its rank: it may leave only after that is taken back
    std::string number = {};              ///< kNumbers key that is removed when it leaves
  };
  void accept_all();
  void reap();
  void serve(Client& client);
  void forget_before(std::string_view key);
  using Values = std::map<std::string, std::string>;
  Values::iterator erase(Values::iterator it);
  bool put(const std::string& key, std::string value);
  bool set(Client& client, StoreRequest request);
  std::optional<std::string> take_number(Client& client, const std::string& key);
  std::optional<std::string> wait_for(Client& client, const std::string& key, std::chrono::milliseconds patience);

  Doorkeeper door_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Values values_;
  std::size_t bytes_ = 0;  ///< of all names and values
  std::optional<Error> failure_;
  bool ending_ = false;
  std::list<Client> clients_;
  std::atomic<int> arrived_ = 0;  ///< number of ranks that have promised to stay, and need no other connection
  std::thread acceptor_;
};

/// A connection that sets a key with this prefix promises that its process stays until another connection sets the key
/// again. If it ends before, kMissing is set.
inline constexpr std::string_view kStays = "stays/";
inline constexpr const char* kMissing = "missing";
/// A client that sets a key with this prefix gets an empty answer if no other client has set it, and otherwise the
/// address of that one.
inline constexpr std::string_view kNumbers = "number/";
/// Prefixes of questions and of answers to them, "alarm/N" and "answer/N/RANK"; those of the last rounds are kept.
inline constexpr std::string_view kAlarms = "alarm/", kAnswers = "answer/";

/// A client of the store. Thread-safe. Throws ErrorKind::peer if the server is gone.
class Store {
 public:
  /// Waits up to `patience` for a server of this attempt, because that of an earlier one may still be running.
  Store(const Meeting& meeting, std::chrono::milliseconds patience);

  void set(const std::string& key, const std::string& value);
  /// Waits until the key is set; returns nothing after `patience`.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience);

  /// Sets how long a server may take to answer, in addition to what it waits for.
  void set_grace(std::chrono::milliseconds grace) { grace_ = grace; }
  /// Sets what messages call the server.
  void set_keeper(std::string keeper) { keeper_ = std::move(keeper); }
  /// Makes current and later calls of other threads fail.
  void shut_down() { socket_.shut_down(); }
  const Meeting& meeting() const { return meeting_; }
  /// Takes a number that only one process may have, until its connection ends. Returns nothing if it is free, else the
  /// address of the process that has it.
  std::optional<std::string> take_number(int rank);

  /// The address of this machine as the server sees it, and that of the server as this machine sees it.
  std::string local_address() const { return socket_.local_address(); }
  std::string server_address() const { return socket_.remote_address(); }
  /// The host at whose addresses other ranks may reach this process: that of the meeting if this is its machine,
  /// because each of them may know it by another address, and otherwise the address that leads there.
  std::string own_host() const;

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
