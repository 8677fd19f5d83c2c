#include "dist/gloo_context.h"

#include <gloo/transport/unbound_buffer.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dist/socket.h"

namespace qtrain {
namespace {

using std::chrono::seconds;

/// What gloo sends before each message, with fields in byte order.
struct Preamble {
  enum Opcode : std::size_t { data = 1, send_ready = 2, receive_ready = 3 };
  std::size_t bytes, opcode, slot, offset, length, remote_offset;
};

/// A rank, and a peer that sends exactly what the test says.
class BrokenTransfer : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = std::size_t{64} << 20, kSlot = 7;
  static constexpr seconds kTimeout{60};

  BrokenTransfer() {
    const Listener listener({.host = "127.0.0.1"});
    ConnectFailure failure;
    peer_ = Socket::connect({.host = "127.0.0.1", .port = listener.port()}, seconds(5), failure);
    Descriptor mine = Listener::accept(listener.sockets().front());
    std::vector<Descriptor> peers(2);
    peers[1] = std::move(mine);
    context_ = std::make_shared<GlooContext>(
        GlooContext::Options{.rank = 0, .address = "127.0.0.1", .peers = std::move(peers), .timeout = kTimeout});
  }

  void say(Preamble::Opcode opcode, std::size_t bytes_behind) {
    const Preamble preamble{sizeof(Preamble) + bytes_behind, opcode, kSlot, 0, kBytes, 0};
    ASSERT_TRUE(peer_->send(std::as_bytes(std::span(&preamble, 1))));
  }
  void hear(Preamble::Opcode opcode) {
    Preamble preamble{};
    ASSERT_TRUE(peer_->receive(std::as_writable_bytes(std::span(&preamble, 1)), seconds(5)));
    ASSERT_EQ(preamble.opcode, opcode);
  }
  // Closes the connection with unread bytes, which resets it.
  void peer_dies() { peer_.reset(); }

  static void expect_error_at_once(const std::function<void()>& wait) {
    const auto since = std::chrono::steady_clock::now();
    EXPECT_ANY_THROW(wait());
    EXPECT_LT(std::chrono::steady_clock::now() - since, kTimeout / 4);
  }

  std::optional<Socket> peer_;
  std::shared_ptr<GlooContext> context_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes);
};

TEST_F(BrokenTransfer, EndsTheWaitOfWhoSends) {
  const auto buffer = context_->createUnboundBuffer(bytes_.data(), kBytes);
  buffer->send(1, kSlot);
  hear(Preamble::send_ready);
  say(Preamble::receive_ready, 0);
  hear(Preamble::data);
  peer_dies();
  expect_error_at_once([&] { buffer->waitSend(kTimeout); });
}

TEST_F(BrokenTransfer, EndsTheWaitOfWhoReceives) {
  const auto buffer = context_->createUnboundBuffer(bytes_.data(), kBytes);
  buffer->recv(1, kSlot);
  hear(Preamble::receive_ready);
  say(Preamble::send_ready, 0);
  say(Preamble::data, kBytes);
  ASSERT_TRUE(peer_->send(std::span(bytes_).first(kBytes / 2)));
  peer_dies();
  expect_error_at_once([&] { buffer->waitRecv(kTimeout); });
}

}  // namespace
}  // namespace qtrain
