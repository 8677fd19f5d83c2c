#include "dist/peer_sockets.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/os/stop.h"
#include "dist/call.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSlice{200};  // how often to check whether the run ends

class Peers {
 public:
  Peers(Store& store, const RankPart& part, milliseconds timeout)
      : store_(store),
        part_(part),
        timeout_(timeout),
        door_({.at = {.host = store.own_host()}, .handshake = handshake_with(part.rank)}),
        sockets_(static_cast<std::size_t>(part.size)) {}

  std::vector<Descriptor> connect() {
    store_.set(key(part_.rank), own_place());
    auto accepted = std::async(std::launch::async, [this] { accept_all(); });
    try {
      for (int i = 0; i < part_.rank; ++i) socket(i) = call(i).release();
    } catch (...) {  // the other thread could wait for a long time
      ended_ = true;
      throw;
    }
    accepted.get();
    return std::move(sockets_);
  }

 private:
  std::string key(int i) const { return part_.meeting + std::to_string(i); }
  Descriptor& socket(int i) { return sockets_[static_cast<std::size_t>(i)]; }
  // The handshake at the port of rank `i`.
  Handshake::Options handshake_with(int i) const {
    return {.secret = store_.meeting().secret, .purpose = key(i), .number = static_cast<std::uint32_t>(part_.rank)};
  }

  void end_if_run_ends() {
    throw_if_stopped();
    if (store_.get(kMissing, {})) throw std::runtime_error("a rank has ended");
  }

  [[noreturn]] void fail_without(int i) const {
    fail(ErrorKind::peer,
         {.cause = fmt::format("rank {} did not connect within {} s{}", part_.number(i),
                               std::chrono::duration_cast<std::chrono::seconds>(timeout_).count(), door_.strangers()),
          .remedy = "start all ranks within ddp_timeout of each other"});
  }

  // The port and the addresses at which this rank listens, the one that leads to the store first.
  std::string own_place() const {
    const std::string first = without_scope(store_.local_address());
    std::string place = fmt::format("{} {}", door_.port(), first);
    for (const std::string& address : door_.addresses())
      if (without_scope(address) != first) place += " " + without_scope(address);
    return place;
  }

  // The address of a rank that this one can reach: one by which it reaches the store, or else the first.
  std::string address_among(const std::vector<std::string>& addresses) const {
    const std::string server = without_scope(store_.server_address());
    const bool with_store = std::ranges::find(addresses, server) != addresses.end();
    const std::string chosen = with_store ? server : addresses.front();
    const std::string scope = scope_of(store_.local_address());
    return chosen.starts_with("fe80:") && !scope.empty() ? chosen + "%" + scope : chosen;
  }

  // Waits for the port and address at which a rank listens.
  Endpoint place_of(int i) {
    std::optional<std::string> text;
    while (!(text = store_.get(key(i), kSlice))) {
      end_if_run_ends();
      if (Clock::now() >= end_) fail_without(i);
    }
    Endpoint place;
    std::istringstream words(*text);
    words >> place.port;
    const std::vector<std::string> addresses{std::istream_iterator<std::string>(words), {}};
    check(place.port != 0 && !addresses.empty(), "a rank has published an invalid address");
    place.host = address_among(addresses);
    return place;
  }

  Socket call(int i) {
    const Endpoint place = place_of(i);
    return connected({.to = place,
                      .handshake = handshake_with(i),
                      .patience = std::chrono::ceil<milliseconds>(end_ - Clock::now()),
                      .whom = fmt::format("rank {}", part_.number(i)),
                      .meanwhile = [this] { end_if_run_ends(); }});
  }

  // If a rank connects twice, it did not learn that the first time succeeded, so the second connection counts.
  void accept_all() {
    for (int first = part_.rank + 1; !ended_;) {
      while (first < part_.size && socket(first).get() >= 0) ++first;
      if (first == part_.size) return;
      if (Clock::now() >= end_) fail_without(first);
      end_if_run_ends();
      auto guest = door_.next(std::min(end_, Clock::now() + kSlice));
      if (!guest) continue;
      const auto i = static_cast<int>(guest->number);
      if (i > part_.rank && i < part_.size) socket(i) = guest->socket.release();
    }
  }

  Store& store_;
  const RankPart& part_;
  milliseconds timeout_;
  Clock::time_point end_ = Clock::now() + timeout_;
  Doorkeeper door_;
  std::vector<Descriptor> sockets_;  ///< `connect` sets those of lower ranks, the other thread the rest
  std::atomic<bool> ended_ = false;
};

}  // namespace

std::vector<Descriptor> connect_peers(Store& store, const RankPart& part, milliseconds timeout) {
  if (part.size == 1) return std::vector<Descriptor>(1);
  return Peers(store, part, timeout).connect();
}

}  // namespace qtrain
