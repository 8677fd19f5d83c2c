#include "dist/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/os/loopback.h"
#include "core/os/stop.h"
#include "core/parallel.h"
#include "dist/call.h"
#include "dist/final_error.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxValues = std::size_t{1} << 18, kMaxClients = std::size_t{1} << 14;
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;  // of all names and values
constexpr std::chrono::seconds kFarewell{4};
constexpr std::chrono::seconds kThreadless{5};  // for threads to end
constexpr std::chrono::seconds kShortWait{1};   // watchdogs wait less than this for each answer
constexpr const char* kTakenBack = "no longer";
constexpr const char* kAttemptKey = "attempt";
constexpr const char* kPurpose = "store";

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::optional<int> number_in(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(n) : std::nullopt;
}

}  // namespace

StoreServer::StoreServer(const Meeting& meeting)
    : door_({.at = meeting.at,
             .handshake = {.secret = meeting.secret, .purpose = kPurpose},
             .say = meeting.say,
             .all_are_here = [this, ranks = meeting.ranks] { return ranks > 0 && arrived_ >= ranks; }}),
      values_{{kAttemptKey, std::to_string(meeting.attempt)}},
      acceptor_([this] { accept_all(); }) {}

StoreServer::~StoreServer() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [&] {
      return std::ranges::all_of(clients_, [](const Client& c) { return c.is_idle || c.ended; });
    });
    ending_ = true;
    for (Client& c : clients_) c.socket.shut_down();
  }
  changed_.notify_all();
  door_.close();
  acceptor_.join();
  for (Client& c : clients_) c.thread.join();
}

std::optional<Error> StoreServer::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void StoreServer::accept_all() try {
  constexpr std::chrono::hours kForEver{24 * 365};
  constexpr Clock::time_point kNever{};
  Clock::time_point threadless_since = kNever;
  while (true) {
    auto guest = door_.next(Clock::now() + kForEver);
    const std::lock_guard lock(mutex_);
    if (!guest || ending_) return;
    reap();
    if (clients_.size() >= kMaxClients) continue;
    Client& c = clients_.emplace_back(std::move(guest->socket));
    try {
      c.thread = std::thread([this, &c] { serve(c); });
      threadless_since = kNever;
    } catch (const std::system_error& e) {  // no thread is left: the client may try again for a while
      clients_.pop_back();
      const auto now = Clock::now();
      if (threadless_since == kNever) threadless_since = now;
      if (now - threadless_since > kThreadless) fail_thread(e);
    }
  }
} catch (const Error& e) {
  const std::lock_guard lock(mutex_);
  failure_ = e;
}

// Removes clients that have left.
void StoreServer::reap() {
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (it->ended) it->thread.join();
    it = it->ended ? clients_.erase(it) : std::next(it);
  }
}

std::optional<std::string> StoreServer::wait_for(Client& client, const std::string& key, milliseconds patience) {
  std::unique_lock lock(mutex_);
  client.is_idle = key.starts_with(kAlarms) || patience > kShortWait;
  changed_.notify_all();
  changed_.wait_for(lock, patience, [&] { return ending_ || values_.contains(key); });
  client.is_idle = false;
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

StoreServer::Values::iterator StoreServer::erase(Values::iterator it) {
  bytes_ -= it->first.size() + it->second.size();
  return values_.erase(it);
}

// Drops old questions of watchdogs, which are answered within seconds.
void StoreServer::forget_before(std::string_view key) {
  constexpr std::int64_t kKept = 16;
  std::int64_t round = 0;
  if (!key.starts_with(kAlarms)) return;
  key.remove_prefix(kAlarms.size());
  if (std::from_chars(key.data(), key.data() + key.size(), round).ec != std::errc() || round < kKept) return;
  if (const auto it = values_.find(fmt::format("{}{}", kAlarms, round - kKept)); it != values_.end()) erase(it);
  const std::string answers = fmt::format("{}{}/", kAnswers, round - kKept);
  for (auto it = values_.lower_bound(answers); it != values_.end() && it->first.starts_with(answers);) it = erase(it);
}

// Returns false if there is no room.
bool StoreServer::put(const std::string& key, std::string value) {
  if (const auto it = values_.find(key); it != values_.end()) erase(it);
  const std::size_t more = key.size() + value.size();
  if (values_.size() >= kMaxValues || more > kMaxBytes - bytes_) return false;
  bytes_ += more;
  values_[key] = std::move(value);
  return true;
}

bool StoreServer::set(Client& client, StoreRequest request) {
  const std::lock_guard lock(mutex_);
  const std::string& key = request.key;
  if (key.starts_with(kStays) && !values_.contains(key))
    client.stays = key, ++arrived_;
  else if (key.starts_with(kStays))
    request.value = kTakenBack;
  forget_before(key);
  if (key == kAttemptKey || !put(key, std::move(request.value))) return false;
  changed_.notify_all();
  return true;
}

std::optional<std::string> StoreServer::take_number(Client& client, const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (const auto it = values_.find(key); it != values_.end()) return it->second;
  if (client.number.empty() && put(key, client.socket.remote_address())) client.number = key;
  return "";
}

void StoreServer::serve(Client& client) {
  Socket& socket = client.socket;
  const ReadBytes read = [&](std::span<std::byte> bytes) { return socket.receive(bytes); };
  while (auto r = StoreRequest::from(read)) {
    StoreAnswer answer;
    if (r->verb == StoreRequest::Verb::get)
      answer.value = wait_for(client, r->key, r->patience);
    else if (r->key.starts_with(kNumbers))
      answer.value = take_number(client, r->key);
    else if (set(client, std::move(*r)))
      answer.value.emplace();
    else
      break;
    if (!socket.send(bytes_of(answer.bytes()))) break;
  }
  socket.shut_down();
  const std::lock_guard lock(mutex_);
  client.ended = true;
  if (const auto it = values_.find(client.number); it != values_.end()) erase(it);
  if (!client.stays.empty() && values_[client.stays] != kTakenBack) put(kMissing, "");
  changed_.notify_all();
}

Store::Store(const Meeting& meeting, milliseconds patience) : meeting_(meeting), socket_(connect(patience)) {
  constexpr milliseconds kAgain{200};
  for (const auto end = Clock::now() + patience;; socket_ = connect(patience)) {
    const std::optional<std::string> text = attempt_there();
    const std::optional<int> theirs = text ? number_in(*text) : std::nullopt;
    if (theirs == meeting.attempt) return;
    if (Clock::now() > end && theirs)
      fail(ErrorKind::peer, {.cause = fmt::format("at {} is start {} of the ranks, but this is start {}",
                                                  meeting.at.text(), *theirs + 1, meeting.attempt + 1),
                             .remedy = "end what still runs there, and start the command on all machines again"});
    if (Clock::now() > end)
      fail(ErrorKind::peer,
           {.cause = fmt::format("something listens at {}, but it does not report which start of the ranks it serves",
                                 meeting.at.text()),
            .remedy = "end what still runs there, and start the command on all machines again"});
    throw_if_stopped();
    if (meeting.meanwhile) meeting.meanwhile();
    std::this_thread::sleep_for(kAgain);
  }
}

Socket Store::connect(milliseconds patience) const {
  return connected({.to = meeting_.at,
                    .handshake = {.secret = meeting_.secret, .purpose = kPurpose},
                    .patience = patience,
                    .say = meeting_.say,
                    .meanwhile = meeting_.meanwhile});
}

// Returns nothing if the server ends.
std::optional<std::string> Store::attempt_there() try { return get(kAttemptKey, {}); } catch (const Error&) {
  return {};
}

std::optional<std::string> Store::ask(const StoreRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto end = Clock::now() + request.patience + grace_;
  const ReadBytes read = [&](std::span<std::byte> bytes) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    return socket_.receive(bytes, std::max(left, milliseconds(0)));
  };
  if (socket_.send(bytes_of(request.bytes())))
    if (const auto answer = StoreAnswer::from(read)) return answer->value;
  fail(ErrorKind::peer, {.cause = fmt::format("{} at {}, where ranks meet, is gone", keeper_, meeting_.at.text()),
                         .remedy = kResumeRemedy});
}

void Store::set(const std::string& key, const std::string& value) {
  check(key.size() <= kMaxStoreKey && value.size() <= kMaxStoreValue, "the key or value is too long for the store");
  ask({.verb = StoreRequest::Verb::set, .key = key, .value = value});
}

std::optional<std::string> Store::take_number(int rank) {
  const auto taken = ask({.verb = StoreRequest::Verb::set, .key = fmt::format("{}{}", kNumbers, rank)});
  return taken && !taken->empty() ? taken : std::nullopt;
}

std::string Store::own_host() const {
  const std::string here = local_address();
  return is_loopback(here) || has_address(meeting_.at.host, here) ? meeting_.at.host : here;
}

std::optional<std::string> Store::get(const std::string& key, milliseconds patience) {
  check(key.size() <= kMaxStoreKey, "the key is too long for the store");
  return ask({.verb = StoreRequest::Verb::get, .patience = patience, .key = key});
}

}  // namespace qtrain
