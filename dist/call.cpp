#include "dist/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenTries{100};
constexpr std::chrono::seconds kTry{5};                                     // for one address to accept a connection
constexpr std::chrono::seconds kReply{10};                                  // for a handshake
constexpr std::chrono::seconds kStrangers{8};                               // how long another program may answer
constexpr std::chrono::minutes kNames{2};                                   // how long a name may stay unresolved
constexpr std::chrono::seconds kSayName{15}, kSayWait{30}, kFirstWait{10};  // between messages

/// How a handshake has ended.
enum class Reply : std::uint8_t { proved, foreign, refused, silent };

Reply shake_hands(Socket& socket, Handshake& handshake, Clock::time_point end) {
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); };
  if (!socket.send(bytes_of(handshake.hello()))) return Reply::silent;
  std::array<char, 256> bytes{};
  while (handshake.state() == Handshake::State::goes_on) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const std::size_t wanted = std::min(handshake.wanted(), bytes.size());
    const std::size_t n =
        socket.receive_some(std::as_writable_bytes(std::span(bytes.data(), wanted)), std::max(left, milliseconds(0)));
    if (n == 0) return Reply::silent;
    if (!socket.send(bytes_of(handshake.take({bytes.data(), n})))) return Reply::silent;
  }
  const Handshake::State state = handshake.state();
  return state == Handshake::State::proved    ? Reply::proved
         : state == Handshake::State::foreign ? Reply::foreign
                                              : Reply::refused;
}

/// Repeats the attempts of a call.
class Caller {
 public:
  explicit Caller(const Call& call) : call_(call) {}

  Socket run() {
    while (true) {
      if (auto socket = attempt()) return std::move(*socket);
      report_wait();
      give_up_in_time();
      throw_if_stopped();
      if (call_.meanwhile) call_.meanwhile();
      std::this_thread::sleep_for(kBetweenTries);
    }
  }

 private:
  Clock::time_point end() const { return begin_ + call_.patience; }

  std::optional<Socket> attempt() {
    failure_ = {};
    reply_ = Reply::silent;
    const auto left = std::chrono::ceil<milliseconds>(end() - Clock::now());
    auto socket = Socket::connect(call_.to, std::clamp<milliseconds>(left, kBetweenTries, kTry), failure_);
    is_there_ = socket.has_value();
    if (!socket) return {};
    Handshake::Options options = call_.handshake;
    options.port = call_.to.port;
    Handshake handshake(Handshake::Side::caller, options);
    reply_ =
        shake_hands(*socket, handshake, std::max(std::min(end(), Clock::now() + kReply), Clock::now() + kBetweenTries));
    if (reply_ != Reply::proved) return {};
    return socket;
  }

  bool meets_stranger() const { return reply_ == Reply::foreign || reply_ == Reply::refused; }

  // The time counts from the first attempt that failed for the same reason.
  void give_up_in_time() {
    const auto now = Clock::now();
    const auto since = [&](bool fails, std::optional<Clock::time_point>& first) {
      if (!fails) first.reset();
      if (fails && !first) first = now;
      return fails ? now - *first : Clock::duration(0);
    };
    const bool strange = since(meets_stranger(), stranger_since_) > kStrangers;
    const bool nameless = since(failure_.unknown_name, nameless_since_) > kNames;
    if (!strange && !nameless && now < end()) return;
    if (reply_ == Reply::refused) fail_as_refused();
    if (reply_ == Reply::foreign)
      fail(ErrorKind::usage, {.cause = fmt::format("something other than {} of this version of qtrain answers at {}",
                                                   call_.whom, call_.to.text()),
                              .remedy = "set master_port (MASTER_PORT) to a port that nothing else uses"});
    fail(ErrorKind::peer, {.cause = reason(),
                           .remedy = fmt::format("{} must be running there; check master_addr, master_port "
                                                 "and the firewall",
                                                 call_.whom)});
  }

  [[noreturn]] void fail_as_refused() const {
    fail(ErrorKind::usage,
         {.cause = fmt::format("{} at {} and this process do not have the same secret", call_.whom, call_.to.text()),
          .remedy = fmt::format("set {} to the same text for all ranks, such as the output of \"openssl rand -hex 32\"",
                                kSecretVariable)});
  }

  std::string reason() const {
    if (failure_.unknown_name) return fmt::format("the name {} has no address ({})", call_.to.host, failure_.why);
    if (is_there_)
      return fmt::format("something listens at {}, but it does not answer as {} of qtrain", call_.to.text(),
                         call_.whom);
    return fmt::format("nothing answers at {} ({})", call_.to.text(), failure_.why);
  }

  void report_wait() {
    const auto now = Clock::now();
    const bool nameless = failure_.unknown_name;
    const bool is_due =
        reported_ ? now - *reported_ >= (nameless ? kSayName : kSayWait) : nameless || now - begin_ >= kFirstWait;
    if (!call_.say || !is_due || now >= end()) return;
    reported_ = now;
    const auto until = nameless ? std::min(end(), nameless_since_.value_or(now) + kNames) : end();
    call_.say(fmt::format("{}; retrying for {} s more to reach {}", reason(),
                          std::chrono::ceil<std::chrono::seconds>(until - now).count(), call_.whom));
  }

  const Call& call_;
  const Clock::time_point begin_ = Clock::now();
  std::optional<Clock::time_point> reported_ = {}, stranger_since_ = {}, nameless_since_ = {};
  ConnectFailure failure_ = {};  ///< of the last attempt
  bool is_there_ = false;        ///< whether it connected
  Reply reply_ = Reply::silent;
};

}  // namespace

Socket connected(const Call& call) {
  return Caller(call).run();
}

}  // namespace qtrain
