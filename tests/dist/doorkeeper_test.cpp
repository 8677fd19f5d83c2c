// Strangers at a port of the ranks: an honest rank notices nothing of what they do, and nothing grows because of it.
#include "dist/doorkeeper.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "dist/store.h"
#include "tests/dist/meetings.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Optional;

using test::kEnough;
using test::kNoTime;

Socket connect_to(std::uint16_t port) {
  ConnectFailure failure;
  auto socket = Socket::connect({.host = "127.0.0.1", .port = port}, kEnough, failure);
  EXPECT_TRUE(socket) << failure.why;
  return socket ? std::move(*socket) : Socket(Descriptor());
}

void say(Socket& socket, const std::string& text) {
  socket.send(std::as_bytes(std::span(text.data(), text.size())));
}

std::string hello() {
  return Handshake(Handshake::Side::caller, {.secret = RankSecret::random()}).hello();
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// What a stranger does at the port; the sockets stay open while the ranks meet.
struct Hostility {
  std::string name;
  std::function<void(std::uint16_t port, std::vector<Socket>& open)> act;
};
void PrintTo(const Hostility& hostility, std::ostream* out) {
  *out << hostility.name;
}

std::vector<Hostility> hostilities() {
  using Open = std::vector<Socket>;
  const auto many = [](int count, const std::string& text) {
    return [=](std::uint16_t port, Open& open) {
      for (int i = 0; i < count; ++i) {
        open.push_back(connect_to(port));
        say(open.back(), text);
      }
    };
  };
  const std::string head("\1\0\0\0\0\0\0\0\0\0\x40\0\0\0\x40\0", 16);  // sets a key of 4 MiB to 4 MiB
  const std::string key("\1\0\0\0\0\0\0\0\7\0\0\0\3\0\0\0verdict\x1b[2J", 27);
  return {{"garbage", many(1, std::string(1000, '\xff'))},
          {"http", many(1, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
          {"silence", many(300, "")},
          {"half_a_hello", many(300, hello().substr(0, 20))},
          {"a_hello_and_no_proof", many(300, hello())},
          {"a_wrong_proof", many(50, hello() + std::string(32, 'x'))},
          {"announced_megabytes", many(200, head)},
          {"a_key_without_proof", many(50, key)},
          {"a_key_behind_a_wrong_proof", many(50, hello() + std::string(32, 'x') + key)},
          {"a_wrong_secret",
           [](std::uint16_t port, Open&) {
             Meeting other = test::meeting_at(port);
             other.secret = RankSecret::random();
             EXPECT_THAT(test::error_if_any(ErrorKind::usage, [&] { const Store s(other, milliseconds(300)); }),
                         HasSubstr("do not have the same secret"));
           }},
          {"connect_and_reset", [](std::uint16_t port, Open&) {
             const linger at_once{.l_onoff = 1, .l_linger = 0};
             for (int i = 0; i < 200; ++i) {
               const Descriptor fd = connect_to(port).release();
               ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
             }
           }}};
}

class AStoreMeets : public ::testing::TestWithParam<Hostility> {};

TEST_P(AStoreMeets, StrangersWhoDoNoHarm) {
  const StoreServer server(test::free_meeting());
  Store before(test::meeting_at(server.port()), kEnough);
  before.set("k", "v");
  const std::size_t memory = resident_bytes();
  std::vector<Socket> open;
  GetParam().act(server.port(), open);
  const auto begin = std::chrono::steady_clock::now();
  Store after(test::meeting_at(server.port()), kEnough);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(after.get("k", kNoTime), Optional(std::string("v")));
  EXPECT_EQ(after.get("verdict", kNoTime), std::nullopt);
  EXPECT_THAT(before.get("k", kNoTime), Optional(std::string("v")));
  EXPECT_LT(resident_bytes(), memory + (std::size_t{32} << 20));
}
INSTANTIATE_TEST_SUITE_P(All, AStoreMeets, ::testing::ValuesIn(hostilities()),
                         [](const auto& info) { return info.param.name; });

// A recorded honest handshake is replayed.
TEST(ADoorkeeper, LetsNobodyInByARecording) {
  const Handshake::Options ours{.secret = test::rank_secret(), .purpose = "store"};
  Doorkeeper door({.at = {.host = "127.0.0.1"}, .handshake = ours});
  const auto soon = [] { return Doorkeeper::Clock::now() + kEnough; };
  std::string recorded;
  std::thread honest([&] {
    Socket socket = connect_to(door.port());
    Handshake::Options options = ours;
    options.port = door.port();
    Handshake handshake(Handshake::Side::caller, options);
    recorded = handshake.hello();
    say(socket, recorded);
    while (handshake.wanted() > 0) {
      std::string part(handshake.wanted(), '\0');
      ASSERT_TRUE(socket.receive(std::as_writable_bytes(std::span(part.data(), part.size())), kEnough));
      const std::string answer = handshake.take(part);
      recorded += answer;
      say(socket, answer);
    }
    EXPECT_EQ(handshake.state(), Handshake::State::proved);
  });
  EXPECT_TRUE(door.next(soon()));
  honest.join();
  Socket again = connect_to(door.port());
  say(again, recorded);
  EXPECT_FALSE(door.next(Doorkeeper::Clock::now() + milliseconds(500)));
  EXPECT_THAT(door.strangers(), HasSubstr("; 1 stranger was turned away at port"));
}

// Runs of a user may share a secret, so a stranger who listens where a rank of one run connects could relay it to the
// port of another.
TEST(AStore, LetsNobodyInWhoCalledAnotherPort) {
  const StoreServer server(test::free_meeting());
  Listener stranger({.host = "127.0.0.1"});
  std::thread relay([&] {
    Descriptor from;
    while ((from = Listener::accept(stranger.sockets()[0])).get() < 0) std::this_thread::sleep_for(milliseconds(5));
    make_blocking(from.get());
    Socket rank(std::move(from)), store = connect_to(server.port());
    std::array<std::byte, 256> bytes{};
    const auto pass = [&](Socket& one, Socket& other) {
      const std::size_t n = one.receive_some(bytes, milliseconds(20));
      return n > 0 && other.send(std::span(bytes).first(n));
    };
    for (const auto end = Doorkeeper::Clock::now() + milliseconds(1500); Doorkeeper::Clock::now() < end;) {
      pass(rank, store);
      pass(store, rank);
    }
  });
  EXPECT_THROW(Store(test::meeting_at(stranger.port()), milliseconds(1000)), Error);
  relay.join();
}

// Connections that say nothing do not occupy their places forever.
TEST(ADoorkeeper, KeepsAFewVisitorsWaiting) {
  Doorkeeper door({.at = {.host = "127.0.0.1"}, .handshake = {.secret = test::rank_secret()}});
  std::vector<Socket> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(connect_to(door.port()));
  EXPECT_FALSE(door.next(Doorkeeper::Clock::now() + milliseconds(500)));
  EXPECT_THAT(door.strangers(), HasSubstr("144 strangers were turned away"));
}

/// A limit on open files while this object exists.
class FewFiles {
 public:
  explicit FewFiles(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{.rlim_cur = limit, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// A run with few descriptors needs them for its checkpoints.
TEST(ADoorkeeper, LeavesMostDescriptorsToTheRun) {
  Doorkeeper door({.at = {.host = "127.0.0.1"}, .handshake = {.secret = test::rank_secret()}});
  const FewFiles limit(200);
  std::vector<Socket> talking;
  for (int i = 0; i < 60; ++i) say(talking.emplace_back(connect_to(door.port())), hello().substr(0, 16));
  EXPECT_FALSE(door.next(Doorkeeper::Clock::now() + milliseconds(500)));
  EXPECT_THAT(door.strangers(), HasSubstr("10 strangers were turned away"));
}

int next_descriptor() {
  const Descriptor fd(::dup(0));
  return fd.get();
}

/// Takes all descriptors but `free`.
std::vector<Descriptor> take_descriptors(std::size_t free) {
  std::vector<Descriptor> all;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) all.emplace_back(fd);
  EXPECT_GE(all.size(), free);
  all.resize(all.size() - std::min(free, all.size()));
  return all;
}

// Strangers who have said something do not keep the last descriptors for as long as a handshake may take.
TEST(ADoorkeeper, HurriesVisitorsWhileDescriptorsAreMissing) {
  Doorkeeper door({.at = {.host = "127.0.0.1"}, .handshake = {.secret = test::rank_secret()}});
  std::vector<Socket> talking;
  for (int i = 0; i < 2; ++i) say(talking.emplace_back(connect_to(door.port())), hello().substr(0, 16));
  const FewFiles limit(static_cast<rlim_t>(next_descriptor()) + 8);
  const std::vector<Descriptor> taken = take_descriptors(1);
  EXPECT_FALSE(door.next(Doorkeeper::Clock::now() + milliseconds(3000)));
  EXPECT_THAT(door.strangers(), HasSubstr("turned away"));
}

/// Once `start` was called, no thread gets a descriptor. Taking all that are free would leave one that a thread holds
/// for a moment, as accept does before it looks for a connection.
class NoDescriptors {
 public:
  NoDescriptors() {
    for (int fd = ::dup(0); fd >= 0 && fd < kLimit; fd = ::dup(0)) low_.emplace_back(fd);
  }
  void start() { limit_.emplace(kLimit); }

 private:
  static constexpr int kLimit = 16;  // at least the sockets that a server polls
  std::vector<Descriptor> low_;
  std::optional<FewFiles> limit_;
};

/// A socket that needs no descriptor when it connects.
class Visitor {
 public:
  explicit Visitor(std::uint16_t port) : port_(port) {}
  bool connect() const {
    sockaddr_in at{
        .sin_family = AF_INET, .sin_port = htons(port_), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    return ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }

 private:
  Descriptor fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_;
};

// Accepting also fails if nobody is waiting, so that strangers, or time, would end a run that has just enough of them.
TEST(ADoorkeeper, NeedsNoDescriptorOnceAllRanksAreHere) {
  NoDescriptors none;
  Meeting meeting = test::free_meeting();
  meeting.ranks = 2;
  StoreServer server(meeting);
  meeting.at.port = server.port();
  Store first(meeting, kEnough), second(meeting, kEnough);
  first.set("stays/0", "");
  second.set("stays/1", "");
  const Visitor stranger(server.port());
  none.start();
  ASSERT_TRUE(stranger.connect());
  std::this_thread::sleep_for(milliseconds(12'000));
  EXPECT_FALSE(server.failure());
  second.set("key", "value");
  EXPECT_EQ(first.get("key", kEnough), "value");
}

// If no descriptor becomes free, it reports that, and can still be ended.
TEST(ADoorkeeper, TellsThatNoDescriptorIsLeft) {
  NoDescriptors none;
  auto server = std::make_unique<StoreServer>(test::free_meeting());
  const Visitor visitor(server->port());
  none.start();
  ASSERT_TRUE(visitor.connect());
  const auto end = std::chrono::steady_clock::now() + 3 * kEnough;
  std::optional<Error> failure;
  while (!(failure = server->failure()) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind(), ErrorKind::usage);
  EXPECT_THAT(failure->what(), HasSubstr("no file descriptor is left for ranks that connect (Too many open files"));
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
}

}  // namespace
}  // namespace qtrain
