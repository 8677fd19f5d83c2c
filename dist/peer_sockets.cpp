#include "dist/peer_sockets.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <future>
#include <optional>
#include <stdexcept>
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
        door_({.at = {.host = store.local_address()}, .handshake = handshake_with(part.rank)}),
        sockets_(static_cast<std::size_t>(part.size)) {}

  std::vector<Descriptor> connect() {
    store_.set(key(part_.rank), fmt::format("{} {}", door_.port(), store_.local_address()));
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

  // Waits for the port and address at which a rank listens.
  Endpoint place_of(int i) {
    std::optional<std::string> text;
    while (!(text = store_.get(key(i), kSlice))) {
      end_if_run_ends();
      if (Clock::now() >= end_) fail_without(i);
    }
    Endpoint place;
    const auto [next, error] = std::from_chars(text->data(), text->data() + text->size(), place.port);
    check(error == std::errc() && next != text->data() + text->size(), "a rank has published an invalid address");
    place.host = text->substr(static_cast<std::size_t>(next - text->data()) + 1);
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
