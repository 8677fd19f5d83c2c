#include "dist/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/stop.h"
#include "dist/last_words.h"

/// A request: what to do (a byte), how long to wait in ms, the lengths of key and value (u32 each), key, value. An
/// answer: whether there is a value (a byte), its length (u32), the value. Numbers are little-endian.
namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

enum class Verb : std::uint8_t { set = 1, get = 2 };

struct RequestHead {
  std::uint32_t verb = 0, patience = 0, key = 0, value = 0;
};
struct AnswerHead {
  std::uint32_t found = 0, value = 0;
};

constexpr std::int32_t kMaxPatience = std::numeric_limits<std::int32_t>::max();  // ms: 24 days
constexpr std::uint32_t kMaxBytes = 4U << 20;  // of a key or value: more is no rank of ours
constexpr std::size_t kMaxValues = 1U << 20;
constexpr std::chrono::seconds kFarewell{4};
constexpr const char* kTakenBack = "no longer";
constexpr const char* kAttemptKey = "attempt";

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

template <class Head>
std::string message(const Head& head, const std::string& body) {
  std::string m(sizeof head, '\0');
  std::memcpy(m.data(), &head, sizeof head);
  return m + body;
}

struct Request {
  RequestHead head;
  std::string key, value;
};

std::optional<Request> next_request(Socket& socket) {
  Request r;
  if (!socket.receive(bytes_of(r.head)) || r.head.key > kMaxBytes || r.head.value > kMaxBytes) return {};
  r.key.resize(r.head.key);
  r.value.resize(r.head.value);
  if (!socket.receive(bytes_of(r.key)) || !socket.receive(bytes_of(r.value))) return {};
  return r;
}

}  // namespace

StoreServer::StoreServer(const Endpoint& at, int attempt)
    : listener_(at), values_{{kAttemptKey, std::to_string(attempt)}}, acceptor_([this] { accept_all(); }) {}

StoreServer::~StoreServer() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [&] {
      return std::ranges::all_of(clients_, [](const Client& c) { return c.waits || c.ended; });
    });
    ending_ = true;
    for (Client& c : clients_) c.socket.shut_down();
  }
  changed_.notify_all();
  listener_.shut_down();
  acceptor_.join();
  for (Client& c : clients_) c.thread.join();
}

void StoreServer::accept_all() {
  while (true) {
    Descriptor fd = listener_.accept();
    const std::lock_guard lock(mutex_);
    if (fd.get() < 0 || ending_) return;
    reap();
    Client& c = clients_.emplace_back(std::move(fd));
    try {
      c.thread = std::thread([this, &c] { serve(c); });
    } catch (const std::system_error&) {  // no more threads: whoever came may try again
      clients_.pop_back();
    }
  }
}

// Those that have left.
void StoreServer::reap() {
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (it->ended) it->thread.join();
    it = it->ended ? clients_.erase(it) : std::next(it);
  }
}

std::optional<std::string> StoreServer::wait_for(Client& client, const std::string& key, milliseconds patience) {
  std::unique_lock lock(mutex_);
  client.waits = true;
  changed_.notify_all();
  changed_.wait_for(lock, patience, [&] { return ending_ || values_.contains(key); });
  client.waits = false;
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

// Questions of watchdogs are answered within seconds; those of long ago are of no use.
void StoreServer::forget_before(std::string_view key) {
  constexpr std::int64_t kKept = 16;
  std::int64_t round = 0;
  if (!key.starts_with(kAlarms)) return;
  key.remove_prefix(kAlarms.size());
  if (std::from_chars(key.data(), key.data() + key.size(), round).ec != std::errc()) return;
  values_.erase(fmt::format("{}{}", kAlarms, round - kKept));
  const std::string answers = fmt::format("{}{}/", kAnswers, round - kKept);
  for (auto it = values_.lower_bound(answers); it != values_.end() && it->first.starts_with(answers);)
    it = values_.erase(it);
}

void StoreServer::serve(Client& client) {
  Socket& socket = client.socket;
  while (auto r = next_request(socket)) {
    std::optional<std::string> value;
    if (r->head.verb == static_cast<std::uint32_t>(Verb::set)) {
      const std::lock_guard lock(mutex_);
      if (values_.size() >= kMaxValues) break;
      if (r->key.starts_with(kStays) && !values_.contains(r->key))
        client.stays = r->key;
      else if (r->key.starts_with(kStays))
        r->value = kTakenBack;
      forget_before(r->key);
      values_[r->key] = std::move(r->value);
      value.emplace();
      changed_.notify_all();
    } else {
      value = wait_for(client, r->key, milliseconds(r->head.patience));
    }
    const AnswerHead head{.found = value ? 1U : 0U,
                          .value = static_cast<std::uint32_t>(value ? value->size() : std::size_t{0})};
    std::string answer = message(head, value.value_or(""));
    if (!socket.send(bytes_of(answer))) break;
  }
  socket.shut_down();
  const std::lock_guard lock(mutex_);
  client.ended = true;
  if (!client.stays.empty() && values_[client.stays] != kTakenBack) values_[kMissing] = "";
  changed_.notify_all();
}

Store::Store(const Endpoint& server, milliseconds patience, int attempt)
    : server_(server), socket_(Socket::connect(server, patience)) {
  constexpr milliseconds kAgain{200};
  const std::string mine = std::to_string(attempt);
  for (const auto end = Clock::now() + patience;; socket_ = Socket::connect(server, patience)) {
    const std::optional<std::string> theirs = attempt_there();
    if (theirs == mine) return;
    if (Clock::now() > end)
      fail(ErrorKind::peer, {.cause = fmt::format("at {} is start {} of the ranks, this is start {}", server.text(),
                                                  theirs ? std::stoi(*theirs) + 1 : 0, attempt + 1),
                             .remedy = "end what still runs there, and start the command on all machines again"});
    throw_if_stopped();
    std::this_thread::sleep_for(kAgain);
  }
}

// Nothing where the server ends.
std::optional<std::string> Store::attempt_there() try { return get(kAttemptKey, {}); } catch (const Error&) {
  return {};
}

std::optional<std::string> Store::ask(const std::string& request, milliseconds patience) {
  const std::lock_guard lock(mutex_);
  AnswerHead head;
  std::string value = request;
  const milliseconds grace = patience + grace_;
  if (socket_.send(bytes_of(value)) && socket_.receive(bytes_of(head), grace) && head.value <= kMaxBytes) {
    value.resize(head.value);
    if (socket_.receive(bytes_of(value), grace)) return head.found ? std::optional(value) : std::nullopt;
  }
  fail(ErrorKind::peer,
       {.cause = fmt::format("{} at {}, where ranks meet, is gone", keeper_, server_.text()), .remedy = kGoOn});
}

void Store::set(const std::string& key, const std::string& value) {
  const RequestHead head{.verb = static_cast<std::uint32_t>(Verb::set),
                         .key = static_cast<std::uint32_t>(key.size()),
                         .value = static_cast<std::uint32_t>(value.size())};
  ask(message(head, key + value), {});
}

std::optional<std::string> Store::get(const std::string& key, milliseconds patience) {
  const RequestHead head{
      .verb = static_cast<std::uint32_t>(Verb::get),
      .patience = static_cast<std::uint32_t>(std::clamp<long long>(patience.count(), 0, kMaxPatience)),
      .key = static_cast<std::uint32_t>(key.size())};
  return ask(message(head, key), patience);
}

}  // namespace qtrain
