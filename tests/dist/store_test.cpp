#include "dist/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tests/errors.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr milliseconds kLong{20'000}, kNoTime{0};

class Stores : public ::testing::Test {
 protected:
  Endpoint meeting() const { return {.host = "127.0.0.1", .port = server_.port()}; }
  StoreServer server_{{.host = "127.0.0.1"}};
};

TEST_F(Stores, ValuesOfOneAreSeenByAnother) {
  Store a(meeting(), kLong), b(meeting(), kLong);
  const std::string value("\0\n binary", 9);
  a.set("name", value);
  a.set("empty", "");
  EXPECT_THAT(b.get("name", kNoTime), Optional(value));
  EXPECT_THAT(b.get("empty", kNoTime), Optional(std::string()));
  a.set("name", "new");
  EXPECT_THAT(b.get("name", kNoTime), Optional(std::string("new")));
}

TEST_F(Stores, AValueIsWaitedFor) {
  Store a(meeting(), kLong), b(meeting(), kLong);
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    a.set("late", "here");
  });
  EXPECT_THAT(b.get("late", kLong), Optional(std::string("here")));
  later.join();
  EXPECT_EQ(b.get("never", milliseconds(50)), std::nullopt);
}

TEST_F(Stores, OthersAreServedWhileOneWaits) {
  Store a(meeting(), kLong), b(meeting(), kLong);
  std::optional<std::string> found;
  std::thread waiting([&] { found = a.get("key", kLong); });
  b.set("other", "1");
  EXPECT_THAT(b.get("other", kNoTime), Optional(std::string("1")));
  b.set("key", "2");
  waiting.join();
  EXPECT_THAT(found, Optional(std::string("2")));
}

// Whatever comes in from the network, ranks are served.
TEST_F(Stores, StrangersDoNoHarm) {
  Socket stranger = Socket::connect(meeting(), kLong);
  const std::string nonsense(64, '\xff');
  EXPECT_TRUE(stranger.send(std::as_bytes(std::span(nonsense))));
  std::byte answer{};
  EXPECT_FALSE(stranger.receive({&answer, 1}, kLong));
  Socket half = Socket::connect(meeting(), kLong);
  EXPECT_TRUE(half.send(std::as_bytes(std::span(nonsense).first(3))));
  half.shut_down();
  Store a(meeting(), kLong);
  a.set("k", "v");
  EXPECT_THAT(a.get("k", kNoTime), Optional(std::string("v")));
}

TEST(Store, SaysWhereNobodyAnswers) {
  Listener taken({.host = "127.0.0.1"});
  const Endpoint free{.host = "127.0.0.1", .port = taken.port()};
  const std::string in_use = test::error_if_any(ErrorKind::usage, [&] { const StoreServer other(free); });
  EXPECT_THAT(in_use, HasSubstr(fmt::format("ranks cannot meet at 127.0.0.1:{} (Address already in use)", free.port)));
  taken = Listener({.host = "127.0.0.1"});
  const std::string nobody = test::error_if_any(ErrorKind::peer, [&] { const Store store(free, milliseconds(100)); });
  EXPECT_THAT(nobody, HasSubstr(fmt::format("nothing answers at 127.0.0.1:{} (Connection refused)", free.port)));
  EXPECT_THAT(
      test::error_if_any(ErrorKind::peer, [] { const Store s({.host = "no.such.host.invalid", .port = 1}, kNoTime); }),
      HasSubstr("no such host"));
}

// A launcher that starts its ranks again sooner than the one with the store.
TEST(Store, WaitsForTheServerOfItsAttempt) {
  auto server = std::make_unique<StoreServer>(Endpoint{.host = "127.0.0.1"}, 1);
  const Endpoint meeting{.host = "127.0.0.1", .port = server->port()};
  Store(meeting, kLong, 1).set("attempt of", "1");
  std::thread next([&] {
    std::this_thread::sleep_for(milliseconds(300));
    server.reset();
    server = std::make_unique<StoreServer>(meeting, 2);
  });
  Store store(meeting, kLong, 2);
  next.join();
  EXPECT_EQ(store.get("attempt of", kNoTime), std::nullopt);
  EXPECT_THAT(test::error_if_any(ErrorKind::peer, [&] { const Store late(meeting, milliseconds(300), 3); }),
              HasSubstr("is start 3 of the ranks, this is start 4"));
}

TEST(Store, SaysWhenItsServerIsGone) {
  auto server = std::make_unique<StoreServer>(Endpoint{.host = "127.0.0.1"});
  Store store({.host = "127.0.0.1", .port = server->port()}, kLong);
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(50));
    server.reset();
  });
  EXPECT_THAT(test::error_if_any(ErrorKind::peer,
                                 [&] {
                                   store.get("never", kLong);
                                   store.set("more", "");
                                 }),
              HasSubstr("where ranks meet, is gone"));
  end.join();
}

}  // namespace
}  // namespace qtrain
