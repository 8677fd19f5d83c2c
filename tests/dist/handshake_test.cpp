#include "dist/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/dist/meetings.h"

namespace qtrain {
namespace {

using State = Handshake::State;
using Side = Handshake::Side;

const RankSecret kOther = RankSecret::of("somebody else's secret");

Handshake::Options ours(std::uint32_t number = 0, const std::string& purpose = "store") {
  return {.secret = test::rank_secret(), .purpose = purpose, .number = number};
}

/// The outcome of a handshake, and everything that was sent.
struct Talk {
  State called, caller;
  std::string to_called, to_caller;
};

// Passes data on in pieces of at most `piece` bytes.
Talk talk(Handshake& called, Handshake& caller, std::size_t piece) {
  Talk all;
  std::string to_called = caller.hello(), to_caller = called.hello();
  const auto hand_on = [&](std::string& from, Handshake& to, std::string& back) {
    const std::size_t n = std::min({from.size(), to.wanted(), piece});
    const std::string answer = to.take(from.substr(0, n));
    from.erase(0, n);
    back += answer;
    return n > 0;
  };
  all.to_called = to_called;
  all.to_caller = to_caller;
  while (true) {
    const std::size_t before_called = to_called.size(), before_caller = to_caller.size();
    const bool a = hand_on(to_called, called, to_caller);
    all.to_caller += to_caller.substr(before_caller);
    const std::size_t now = to_called.size();
    const bool b = hand_on(to_caller, caller, to_called);
    all.to_called += to_called.substr(now);
    if (!a && !b) break;
    (void)before_called;
  }
  all.called = called.state();
  all.caller = caller.state();
  return all;
}

TEST(AHandshake, ProvesBothEnds) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    Handshake called(Side::called, ours(3)), caller(Side::caller, ours(0x01020304));
    const Talk t = talk(called, caller, piece);
    EXPECT_EQ(t.called, State::proved);
    EXPECT_EQ(t.caller, State::proved);
    EXPECT_EQ(called.number(), 0x01020304u);
    EXPECT_EQ(caller.number(), 3u);
    EXPECT_EQ(called.wanted(), 0u);
    EXPECT_EQ((t.to_called + t.to_caller).find(test::rank_secret().text()), std::string::npos);
  }
}

TEST(AHandshake, IsRefusedWithoutTheSecretAndForOtherPurposes) {
  const std::vector<Handshake::Options> strangers{{.secret = kOther, .purpose = "store"}, ours(0, "gloo/1")};
  for (const Handshake::Options& stranger : strangers) {
    Handshake called(Side::called, ours()), caller(Side::caller, stranger);
    const Talk t = talk(called, caller, 1000);
    EXPECT_EQ(t.called, State::refused);
    EXPECT_EQ(t.caller, State::refused);
  }
}

// Sending a peer its own data back must not authenticate.
TEST(AHandshake, IsNotMadeOfWhatTheOtherEndSays) {
  Handshake called(Side::called, ours());
  EXPECT_EQ(called.take(called.hello()), "");
  called.take(std::string(called.wanted(), '\0'));
  EXPECT_EQ(called.state(), State::refused);
  Handshake caller(Side::caller, ours());
  const std::string proof = caller.take(caller.hello());
  caller.take("y" + proof);
  EXPECT_EQ(caller.state(), State::refused);
}

TEST(AHandshake, CannotBeReplayed) {
  Handshake called(Side::called, ours()), caller(Side::caller, ours());
  const Talk t = talk(called, caller, 1000);
  ASSERT_EQ(t.called, State::proved);
  Handshake again(Side::called, ours()), caller_again(Side::caller, ours());
  std::string recorded = t.to_called;
  while (again.wanted() > 0) {
    const std::size_t n = again.wanted();
    again.take(recorded.substr(0, n));
    recorded.erase(0, n);
  }
  EXPECT_EQ(again.state(), State::refused);
  recorded = t.to_caller;
  while (caller_again.wanted() > 0) {
    const std::size_t n = caller_again.wanted();
    caller_again.take(recorded.substr(0, n));
    recorded.erase(0, n);
  }
  EXPECT_EQ(caller_again.state(), State::refused);
}

// Flips each bit of everything that is sent, one at a time.
TEST(AHandshake, FailsForEveryChangedBit) {
  Handshake probe(Side::called, ours()), probing(Side::caller, ours());
  const Talk sizes = talk(probe, probing, 1000);
  for (std::size_t i = 0; i < sizes.to_called.size(); ++i) {
    Handshake called(Side::called, ours()), caller(Side::caller, ours());
    std::string sent = caller.hello();
    const std::size_t hello = sent.size();
    if (i < hello) sent[i] ^= 1;
    const std::string nothing = called.take(sent);
    if (called.state() == State::goes_on) {
      std::string proof = caller.take(called.hello());
      if (i >= hello) proof[i - hello] ^= 1;
      called.take(proof);
    }
    EXPECT_NE(called.state(), State::proved) << i;
  }
}

TEST(AHandshake, TellsAnotherProtocolByItsFirstBytes) {
  for (const char* said : {"GET / HTTP/1.1\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "qtrain ranks v2\n", "\x16\x03\x01"}) {
    Handshake caller(Side::caller, ours());
    caller.take(said);
    EXPECT_EQ(caller.state(), State::foreign) << said;
    EXPECT_EQ(caller.wanted(), 0u);
  }
}

}  // namespace
}  // namespace qtrain
