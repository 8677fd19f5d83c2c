#include "dist/gloo_context.h"

#include <fcntl.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace qtrain {

namespace tcp = gloo::transport::tcp;

/// The connection to another rank. gloo's own class starts to listen when it is created; this closes that port
/// immediately and drops whatever has connected to it.
class GlooContext::Pair : public tcp::Pair {
 public:
  Pair(tcp::Context* context, tcp::Device* device, int rank, std::chrono::milliseconds timeout)
      : tcp::Pair(context, device, rank, timeout) {
    const std::lock_guard lock(m_);
    if (fd_ >= 0) ::close(fd_);  // which also removes it from the device's event loop
    fd_ = -1;
    rx_ = tcp::Op();
    ex_ = nullptr;
    state_ = INITIALIZING;
    setLocalRank(0);
  }

  void take(Descriptor connection) {
    const std::lock_guard lock(m_);
    fd_ = ::fcntl(connection.get(), F_DUPFD_CLOEXEC, 0);
    check(fd_ >= 0, "no descriptor is left for a connection between ranks");
    handleConnected();
  }

  void cut() {
    const std::lock_guard lock(m_);
    if (state_ == CONNECTED) ::shutdown(fd_, SHUT_RDWR);
  }

  // Late events of the closed port are ignored. Calls that wait get errors through end_wait.
  void handleEvents(int events) override try {
    {
      const std::unique_lock lock(m_, std::try_to_lock);
      if (!lock || state_ != CONNECTED) return;
    }
    tcp::Pair::handleEvents(events);
  } catch (const gloo::IoException&) {
  }

 protected:
  // gloo reports a broken connection to those who wait for a transfer, except for transfers that have begun, which
  // would wait until the timeout.
  void changeState(state next) noexcept override {
    if (next == CLOSED && ex_) {
      for (const tcp::Op& op : tx_) end_wait(op);
      end_wait(rx_);
    }
    tcp::Pair::changeState(next);
  }
  bool write(tcp::Op& op) override {
    const bool is_done = tcp::Pair::write(op);
    if (!is_done && ex_) end_wait(op);
    return is_done;
  }

 private:
  /// Gives access to a function that gloo reserves for its own classes: it sets the error of a buffer.
  struct BufferAccess : tcp::UnboundBuffer {
    static void fail(tcp::UnboundBuffer& buffer, const std::exception_ptr& error) {
      (buffer.*&BufferAccess::signalException)(error);
    }
  };
  void end_wait(const tcp::Op& op) {
    if (const gloo::NonOwningPtr<tcp::UnboundBuffer> buffer(op.ubuf); buffer)
      BufferAccess::fail(*buffer.operator->(), ex_);
  }
};

class GlooContext::Pairs : public tcp::Context {
 public:
  using tcp::Context::Context;
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override {
    auto& pair = pairs_[static_cast<std::size_t>(rank)];
    pair = std::make_unique<GlooContext::Pair>(this, device_.get(), rank, getTimeout());
    return pair;
  }
};

GlooContext::GlooContext(Options options) : gloo::Context(options.rank, static_cast<int>(options.peers.size())) {
  setTimeout(options.timeout);
  device_ = tcp::CreateDevice(options.address.c_str());
  auto pairs = std::make_shared<Pairs>(std::dynamic_pointer_cast<tcp::Device>(device_), rank, size);
  pairs->setTimeout(options.timeout);
  for (int i = 0; i < size; ++i)
    if (i != rank)
      dynamic_cast<Pair&>(*pairs->createPair(i)).take(std::move(options.peers[static_cast<std::size_t>(i)]));
  transportContext_ = std::move(pairs);
}

GlooContext::~GlooContext() = default;

void GlooContext::cut() {
  for (int i = 0; i < size; ++i)
    if (i != rank) dynamic_cast<Pair&>(*getPair(i)).cut();
}

}  // namespace qtrain
