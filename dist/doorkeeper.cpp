#include "dist/doorkeeper.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/plural.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = Doorkeeper::Clock;

constexpr std::chrono::seconds kHandshake{10};      // time for a handshake
constexpr std::chrono::seconds kNoDescriptors{10};  // time for descriptors to become free
constexpr milliseconds kRetryInterval{20}, kIdleInterval{1000};
constexpr milliseconds kHurriedHandshake{1000};  // while descriptors are missing
constexpr std::size_t kVisitors = 256, kFewVisitors = 8;
constexpr std::size_t kRounds = 16;  // rounds of accepting in which all places can be taken
constexpr int kReported = 3;         // strangers, so that a thousand attempts do not fill the log

rlim_t max_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// The run needs most of the descriptors for its own files and connections.
std::size_t max_visitors() {
  return static_cast<std::size_t>(std::clamp<rlim_t>(max_descriptors() / 4, kFewVisitors, kVisitors));
}

}  // namespace

Doorkeeper::Doorkeeper(const Options& options)
    : options_(options), listener_(options.at), close_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(close_event_.get() >= 0, "cannot create an eventfd");
  options_.handshake.port = port();
}

void Doorkeeper::close() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      ::write(close_event_.get(), &one, sizeof one);  // it is never read, so it stays readable
}

std::optional<Doorkeeper::Guest> Doorkeeper::next(Clock::time_point end) {
  while (true) {
    pollfd closed{.fd = close_event_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&closed, 1, 0) > 0) return {};
    for (auto it = visitors_.begin(); it != visitors_.end();) {
      std::optional<Guest> guest = receive(*it);
      const bool leaves = guest || it->fd.get() < 0;
      it = leaves ? visitors_.erase(it) : std::next(it);
      if (guest) return guest;
    }
    take_in();
    if (Clock::now() >= end) return {};
    wait(end);
  }
}

// Waits until a visitor connects, sends something, or runs out of time.
void Doorkeeper::wait(Clock::time_point end) {
  std::vector<pollfd> waited{{close_event_.get(), POLLIN, 0}};
  for (const Visitor& v : visitors_) {
    waited.push_back({v.fd.get(), POLLIN, 0});
    end = std::min(end, v.leaves);
  }
  if (misses_since_)
    end = std::min(end, Clock::now() + (all_are_here() ? kIdleInterval : kRetryInterval));
  else
    for (const Descriptor& s : listener_.sockets()) waited.push_back({s.get(), POLLIN, 0});
  constexpr long long kLongest = 60'000;
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  ::poll(waited.data(), waited.size(), static_cast<int>(std::clamp<long long>(left, 0, kLongest)));
}

void Doorkeeper::take_in() {
  for (const Descriptor& socket : listener_.sockets()) accept_from(socket);
}

// Accepts a few at a time, so that pending handshakes make progress however many visitors come.
void Doorkeeper::accept_from(const Descriptor& socket) {
  const std::size_t at_once = std::max<std::size_t>(max_visitors() / kRounds, 1);
  for (std::size_t i = 0; i < at_once; ++i) {
    Descriptor fd = Listener::accept(socket);
    if (fd.get() < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
      return miss_descriptor(errno);
    if (fd.get() < 0) return;
    misses_since_.reset();
    make_room();
    visitors_.push_back({.fd = std::move(fd),
                         .handshake = Handshake(Handshake::Side::called, options_.handshake),
                         .leaves = Clock::now() + kHandshake});
    Visitor& v = visitors_.back();
    if (!send(v, v.handshake.hello())) turn_away(v, "it disconnected immediately");
  }
}

// Frees the descriptors of visitors that have sent nothing, and soon those of others. If none become free for a while,
// the run ends, unless it needs nobody else: accept also fails if nobody is waiting, and a stranger must not end a run.
void Doorkeeper::miss_descriptor(int error) {
  const auto now = Clock::now();
  if (!misses_since_) misses_since_ = now;
  for (Visitor& v : visitors_) {
    if (!v.has_spoken) turn_away(v, "no file descriptor was left for it");
    v.leaves = std::min(v.leaves, now + kHurriedHandshake);
  }
  if (now - *misses_since_ < kNoDescriptors || all_are_here()) return;
  fail(ErrorKind::usage,
       {.cause = fmt::format("no file descriptor is left for ranks that connect ({}; the limit is {})",
                             std::strerror(error), max_descriptors()),
        .remedy = "raise the limit of open files (ulimit -n), or start fewer ranks on this machine"});
}

void Doorkeeper::make_room() {
  const auto stays = [](const Visitor& v) { return v.fd.get() >= 0; };
  if (static_cast<std::size_t>(std::ranges::count_if(visitors_, stays)) < max_visitors()) return;
  auto first = std::ranges::find_if(visitors_, [&](const Visitor& v) { return stays(v) && !v.has_spoken; });
  if (first == visitors_.end()) first = std::ranges::find_if(visitors_, stays);
  turn_away(*first, "too many other processes connected");
}

std::optional<Doorkeeper::Guest> Doorkeeper::receive(Visitor& v) {
  std::array<char, 256> bytes{};
  while (v.fd.get() >= 0) {
    const std::size_t wanted = std::min(v.handshake.wanted(), bytes.size());
    const ssize_t n = ::recv(v.fd.get(), bytes.data(), wanted, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (Clock::now() >= v.leaves) turn_away(v, "it did not prove in time that it belongs to this run");
      return {};
    }
    if (n <= 0) {
      turn_away(v, "it disconnected without proving that it belongs to this run");
      return {};
    }
    v.has_spoken = true;
    const std::string answer = v.handshake.take({bytes.data(), static_cast<std::size_t>(n)});
    const bool sent = send(v, answer);
    const Handshake::State state = v.handshake.state();
    if (state == Handshake::State::foreign)
      turn_away(v, "it does not speak the protocol of the ranks");
    else if (state == Handshake::State::refused)
      turn_away(v, "it does not know the secret of this run");
    else if (!sent)
      turn_away(v, "it disconnected before it was accepted");
    if (v.fd.get() < 0 || state != Handshake::State::proved) continue;
    make_blocking(v.fd.get());
    return Guest{.socket = Socket(std::move(v.fd)), .number = v.handshake.number()};
  }
  return {};
}

// A peer that does not accept a few bytes is not waiting for them.
bool Doorkeeper::send(const Visitor& visitor, const std::string& text) const {
  return text.empty() ||
         ::send(visitor.fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

void Doorkeeper::turn_away(Visitor& visitor, const char* why) {
  if (visitor.fd.get() < 0) return;
  ++turned_away_;
  last_ = peer_of(visitor.fd.get());
  visitor.fd.close();
  if (!options_.say || turned_away_ > kReported) return;
  options_.say(fmt::format("turned away a stranger that connected from {} to port {}: {}{}", last_, port(), why,
                           turned_away_ == kReported ? "; no more strangers will be reported" : ""));
}

std::string Doorkeeper::strangers() const {
  if (turned_away_ == 0) return {};
  return fmt::format("; {} turned away at port {}, the last one from {}",
                     turned_away_ == 1 ? "1 stranger was" : fmt::format("{} strangers were", turned_away_), port(),
                     last_);
}

}  // namespace qtrain
