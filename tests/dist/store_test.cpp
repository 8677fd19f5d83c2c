#include "dist/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/os/loopback.h"
#include "tests/dist/meetings.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Optional;

using test::kEnough;
using test::kNoTime;

class Stores : public ::testing::Test {
 protected:
  Meeting meeting() const { return test::meeting_at(server_.port()); }
  StoreServer server_{test::free_meeting()};
};

TEST_F(Stores, ValuesOfOneAreSeenByAnother) {
  Store a(meeting(), kEnough), b(meeting(), kEnough);
  const std::string value("\0\n binary", 9);
  a.set("name", value);
  a.set("empty", "");
  EXPECT_THAT(b.get("name", kNoTime), Optional(value));
  EXPECT_THAT(b.get("empty", kNoTime), Optional(std::string()));
  a.set("name", "new");
  EXPECT_THAT(b.get("name", kNoTime), Optional(std::string("new")));
}

TEST_F(Stores, AValueIsWaitedFor) {
  Store a(meeting(), kEnough), b(meeting(), kEnough);
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    a.set("late", "here");
  });
  EXPECT_THAT(b.get("late", kEnough), Optional(std::string("here")));
  later.join();
  EXPECT_EQ(b.get("never", milliseconds(50)), std::nullopt);
}

TEST_F(Stores, OthersAreServedWhileOneWaits) {
  Store a(meeting(), kEnough), b(meeting(), kEnough);
  std::optional<std::string> found;
  std::thread waiting([&] { found = a.get("key", kEnough); });
  b.set("other", "1");
  EXPECT_THAT(b.get("other", kNoTime), Optional(std::string("1")));
  b.set("key", "2");
  waiting.join();
  EXPECT_THAT(found, Optional(std::string("2")));
}

// Ranks are trusted, but the store still limits what it accepts from them.
TEST_F(Stores, AreBounded) {
  Store a(meeting(), kEnough);
  EXPECT_THAT(test::error_if_any(ErrorKind::internal, [&] { a.set(std::string(kMaxStoreKey + 1, 'k'), ""); }),
              HasSubstr("too long"));
  EXPECT_THAT(test::error_if_any(ErrorKind::internal, [&] { a.set("k", std::string(kMaxStoreValue + 1, 'v')); }),
              HasSubstr("too long"));
  const std::string large(kMaxStoreValue, 'v');
  a.set("k", large);
  EXPECT_THAT(a.get("k", kNoTime), Optional(large));
  EXPECT_THAT(test::error_if_any(ErrorKind::peer, [&] { a.set("attempt", "no number"); }), HasSubstr("is gone"));
  EXPECT_THAT(Store(meeting(), kEnough).get("attempt", kNoTime), Optional(std::string("0")));
}

// The rank that determines why the run ends waits for answers from ranks that are gone.
TEST(Store, StaysUntilOthersHaveAsked) {
  std::optional<StoreServer> server(test::free_meeting());
  Store store(test::meeting_at(server->port()), kEnough);
  std::thread asking([&] {
    EXPECT_EQ(store.get("answer/1/2", milliseconds(400)), std::nullopt);
    EXPECT_EQ(store.get("verdict", kNoTime), std::nullopt);
    store.shut_down();
  });
  std::this_thread::sleep_for(milliseconds(100));
  server.reset();
  asking.join();
}

TEST(Store, SaysWhereNobodyAnswers) {
  Listener taken({.host = "127.0.0.1"});
  const Meeting there = test::meeting_at(taken.port());
  const std::string in_use = test::error_if_any(ErrorKind::usage, [&] { const StoreServer other(there); });
  EXPECT_THAT(in_use, HasSubstr(fmt::format("ranks cannot meet at {} (Address already in use)", there.at.text())));
  const auto refused = [&] {
    return test::error_if_any(ErrorKind::peer, [&] { const Store store(there, milliseconds(300)); });
  };
  EXPECT_THAT(refused(),
              HasSubstr(fmt::format("something listens at {}, but it does not answer as rank 0", there.at.text())));
  taken = Listener({.host = "127.0.0.1"});
  EXPECT_THAT(refused(), HasSubstr(fmt::format("nothing answers at {} (Connection refused)", there.at.text())));
}

// The reason is logged immediately, while the process keeps trying.
TEST(Store, TellsOfANameWithoutAnAddress) {
  std::vector<std::string> said;
  const Meeting nowhere{.at = {.host = "no.such.host.invalid", .port = 1},
                        .secret = test::rank_secret(),
                        .say = [&](const std::string& text) { said.push_back(text); }};
  EXPECT_THAT(test::error_if_any(ErrorKind::peer, [&] { const Store s(nowhere, milliseconds(1500)); }),
              HasSubstr("the name no.such.host.invalid has no address ("));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("the name no.such.host.invalid has no address ("));
  EXPECT_THAT(said[0], HasSubstr("retrying for 2 s more to reach rank 0"));
}

/// Another service sends a banner to every client and reads nothing.
TEST(Store, TellsAnotherService) {
  for (const char* banner : {"SSH-2.0-OpenSSH_9.2p1\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    Listener service({.host = "127.0.0.1"});
    std::atomic<bool> ended = false;
    std::thread speaks([&] {
      std::vector<Descriptor> clients;
      while (!ended) {
        Descriptor client = Listener::accept(service.sockets()[0]);
        if (client.get() >= 0) {
          EXPECT_EQ(::send(client.get(), banner, std::strlen(banner), MSG_NOSIGNAL), std::ssize(std::string(banner)));
          clients.push_back(std::move(client));
        }
        std::this_thread::sleep_for(milliseconds(10));
      }
    });
    const Meeting there = test::meeting_at(service.port());
    EXPECT_THAT(
        test::error_if_any(ErrorKind::usage, [&] { const Store s(there, milliseconds(500)); }),
        HasSubstr(fmt::format("something other than rank 0 of this version of qtrain answers at {}", there.at.text())));
    ended = true;
    speaks.join();
  }
}

TEST(Store, TellsAnotherSecret) {
  std::vector<std::string> said;
  Meeting meeting = test::free_meeting();
  meeting.say = [&](const std::string& text) { said.push_back(text); };
  auto server = std::make_unique<StoreServer>(meeting);
  Meeting other = test::meeting_at(server->port());
  other.secret = RankSecret::random();
  const std::string refused = test::error_if_any(ErrorKind::usage, [&] { const Store s(other, milliseconds(300)); });
  EXPECT_THAT(refused,
              HasSubstr(fmt::format("rank 0 at {} and this process do not have the same secret", other.at.text())));
  EXPECT_THAT(refused, HasSubstr("set QTRAIN_RANK_SECRET to the same text for all ranks"));
  server.reset();
  ASSERT_FALSE(said.empty());
  EXPECT_LE(said.size(), 3u);
  EXPECT_THAT(said[0], HasSubstr("turned away a stranger that connected from 127.0.0.1:"));
  EXPECT_THAT(said[0], HasSubstr("it does not know the secret of this run"));
}

// A rank listens only at the addresses of its host name, which may be IPv6.
TEST(Store, IsWhereItsAddressIs) {
  for (const char* host : {"127.0.0.1", "::1", "[::1]", "localhost", "::ffff:127.0.0.1", "[::FFFF:7f00:1]"}) {
    const StoreServer server({.at = {.host = host}, .secret = test::rank_secret()});
    const Meeting there{.at = {.host = host, .port = server.port()}, .secret = test::rank_secret()};
    Store a(there, kEnough);
    a.set("k", "v");
    EXPECT_THAT(a.get("k", kNoTime), Optional(std::string("v"))) << host;
    EXPECT_TRUE(is_loopback(a.local_address())) << a.local_address();
  }
  const StoreServer server(test::free_meeting());
  ConnectFailure failure;
  EXPECT_FALSE(Socket::connect({.host = "127.0.0.2", .port = server.port()}, kEnough, failure));
  EXPECT_EQ(failure.why, "Connection refused");
  EXPECT_EQ((Endpoint{.host = "::1", .port = 5}.text()), "[::1]:5");
  EXPECT_EQ((Endpoint{.host = "[::1]", .port = 5}.text()), "[::1]:5");
}

// A free port is free at all addresses, and clients can use any of them.
TEST(Store, IsAtAllAddressesOfItsHost) {
  for (const char* host : {"127.0.0.1", "localhost", ""}) {
    const Listener listener({.host = host});
    EXPECT_EQ(listener.addresses().size(), listener.sockets().size());
    for (const std::string& address : listener.addresses()) {
      ConnectFailure failure;
      const std::string reached = address == "0.0.0.0" ? "127.0.0.1" : address == "::" ? "::1" : address;
      EXPECT_TRUE(Socket::connect({.host = reached, .port = listener.port()}, kEnough, failure))
          << address << failure.why;
    }
  }
}

TEST_F(Stores, GiveANumberToOneProcessAtATime) {
  Store b(meeting(), kEnough);
  {
    Store a(meeting(), kEnough);
    EXPECT_EQ(a.take_number(1), std::nullopt);
    EXPECT_THAT(b.take_number(1), Optional(std::string("127.0.0.1")));
    EXPECT_EQ(b.take_number(0), std::nullopt);
  }
  Store c(meeting(), kEnough);
  const auto end = std::chrono::steady_clock::now() + kEnough;  // the server notices soon that `a` has left
  while (c.take_number(1) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_THAT(b.take_number(1), Optional(std::string("127.0.0.1")));
}

// One launcher restarts its ranks earlier than the launcher whose rank has the store.
TEST(Store, WaitsForTheServerOfItsAttempt) {
  Meeting meeting = test::free_meeting();
  meeting.attempt = 1;
  auto server = std::make_unique<StoreServer>(meeting);
  meeting.at.port = server->port();
  Store(meeting, kEnough).set("attempt of", "1");
  meeting.attempt = 2;
  std::thread next([&] {
    std::this_thread::sleep_for(milliseconds(300));
    server.reset();
    server = std::make_unique<StoreServer>(meeting);
  });
  Store store(meeting, kEnough);
  next.join();
  EXPECT_EQ(store.get("attempt of", kNoTime), std::nullopt);
  meeting.attempt = 3;
  EXPECT_THAT(test::error_if_any(ErrorKind::peer, [&] { const Store late(meeting, milliseconds(300)); }),
              HasSubstr("is start 3 of the ranks, but this is start 4"));
}

TEST(Store, SaysWhenItsServerIsGone) {
  auto server = std::make_unique<StoreServer>(test::free_meeting());
  Store store(test::meeting_at(server->port()), kEnough);
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(50));
    server.reset();
  });
  EXPECT_THAT(test::error_if_any(ErrorKind::peer,
                                 [&] {
                                   store.get("never", kEnough);
                                   store.set("more", "");
                                 }),
              HasSubstr("where ranks meet, is gone"));
  end.join();
}

}  // namespace
}  // namespace qtrain
