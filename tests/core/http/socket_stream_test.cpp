#include "core/http/socket_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "core/os/descriptor.h"

namespace qtrain::http {
namespace {

using std::chrono::milliseconds;

/// A stream with little room between its ends, and a client that reads from it.
struct Pair {
  std::atomic<bool> ending = false;
  std::array<Descriptor, 2> ends = [] {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    const int few = 4096;
    ::setsockopt(both[0], SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
    return std::array<Descriptor, 2>{Descriptor(both[0]), Descriptor(both[1])};
  }();
  SocketStream stream{ends[0].get(), milliseconds(300), ending};

  void take(std::size_t bytes) const {
    std::array<char, 1024> taken{};
    while (bytes > 0) {
      const ssize_t n = ::recv(ends[1].get(), taken.data(), std::min(bytes, taken.size()), 0);
      if (n <= 0) return;
      bytes -= static_cast<std::size_t>(n);
    }
  }
};

// Takes each piece in time, but all of them at half of the least speed: 64 bytes per millisecond.
TEST(SocketStream, ASlowClientGetsItsTimeOnceForAllPieces) {
  constexpr int kPieces = 400;  // which the client would take 12.8 s for
  Pair pair;
  std::atomic<bool> over = false;
  std::thread client([&] {
    for (; !over; std::this_thread::sleep_for(milliseconds(32))) pair.take(1024);
  });
  pair.stream.begin_answer();
  int sent = 0;
  while (sent < kPieces && pair.stream.write(std::string(1024, 'x'))) ++sent;
  over = true;
  pair.ends[0].close();
  client.join();
  EXPECT_GT(sent, 5);
  EXPECT_LT(sent, kPieces / 2);
}

TEST(SocketStream, AFastClientMayPauseAgain) {
  constexpr std::size_t kSize = 100'000;  // takes 1.5 s at the least speed
  Pair pair;
  std::thread client([&] {
    for (int pause = 0; pause < 4; ++pause) {
      std::this_thread::sleep_for(milliseconds(150));
      pair.take(kSize);
    }
  });
  pair.stream.begin_answer();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pair.stream.write(std::string(kSize, 'x'))) << i;
  client.join();
}

TEST(SocketStream, EachAnswerHasItsOwnTime) {
  Pair pair;
  std::thread client([&] {
    for (int answer = 0; answer < 4; ++answer) {
      std::this_thread::sleep_for(milliseconds(150));
      pair.take(20'000);
    }
  });
  for (int i = 0; i < 4; ++i) {
    pair.stream.begin_answer();
    for (int piece = 0; piece < 20'000; piece += 10) EXPECT_TRUE(pair.stream.write(std::string(10, 'x'))) << i;
  }
  client.join();
}

}  // namespace
}  // namespace qtrain::http
