#include "dist/gloo_collective.h"

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/stop.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// `size` ranks of a run from `first` on, each `stride`-th, of which this one is number `rank`, and where in the store
/// they meet.
struct RankPart {
  int first = 0, size = 1, rank = 0, stride = 1;
  std::string meeting = "gloo/";
};

/// The store in the words of gloo, for the ranks of a part.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(qtrain::Store& store, const RankPart& part, milliseconds timeout)
      : store_(store), part_(part), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(part_.meeting + key, {data.begin(), data.end()});
  }
  std::vector<char> get(const std::string& key) override { return get(key, timeout_); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    for (const std::string& key : keys) get(key, std::min(timeout, timeout_));
  }

 private:
  std::vector<char> get(const std::string& key, milliseconds patience) {
    const auto value = wait_for(part_.meeting + key, patience);
    if (!value)
      fail(ErrorKind::peer, {.cause = fmt::format("rank {} did not come within {} s", rank_in(key),
                                                  std::chrono::duration_cast<std::chrono::seconds>(patience).count()),
                             .remedy = "start all ranks within ddp_timeout of each other"});
    return {value->begin(), value->end()};
  }

  int rank_in(const std::string& key) const {
    const std::string digits = key.substr(key.find_last_not_of("0123456789") + 1);
    return part_.first + part_.stride * (digits.empty() ? 0 : std::stoi(digits));
  }

  // In short waits, for a stop that is asked for meanwhile.
  std::optional<std::string> wait_for(const std::string& key, milliseconds patience) {
    constexpr milliseconds kSlice{200};
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      if (auto value = store_.get(key, kSlice)) return value;
      throw_if_stopped();
    }
    return {};
  }

  qtrain::Store& store_;
  RankPart part_;
  milliseconds timeout_;
};

/// The connections of this process, by descriptor, each with the number of its socket: descriptors are used again.
using Connections = std::map<int, ino_t>;

using NameOfSocket = int (*)(int, sockaddr*, socklen_t*);

// Of the end of a connection that `name` names; none: it is no connection over a network.
std::optional<std::uint16_t> port_of(int fd, NameOfSocket name) {
  sockaddr_storage end{};
  socklen_t length = sizeof end;
  if (name(fd, reinterpret_cast<sockaddr*>(&end), &length) != 0) return {};
  if (end.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(end).sin_port);
  if (end.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(end).sin6_port);
  return {};
}

// But those to the store, which one of the ranks may serve.
Connections open_connections(std::uint16_t store) {
  Connections all;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    const int fd = std::stoi(it->path().filename());
    const auto here = port_of(fd, ::getsockname), there = port_of(fd, ::getpeername);
    struct stat about {};
    if (here && there && *here != store && *there != store && ::fstat(fd, &about) == 0) all[fd] = about.st_ino;
  }
  return all;
}

template <class T>
void add(void* to, const void* a, const void* b, std::size_t n) {
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* out = static_cast<T*>(to);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(x[i] + y[i]);
}

template <class T>
void larger(void* to, const void* a, const void* b, std::size_t n) {
  const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* out = static_cast<T*>(to);
  for (std::size_t i = 0; i < n; ++i) out[i] = y[i] > x[i] ? y[i] : x[i];
}

class GlooCollective : public Collective {
 public:
  GlooCollective(const RankPart& part, qtrain::Store& store, milliseconds timeout)
      : part_(part),
        store_(store),
        timeout_(timeout),
        context_(std::make_shared<gloo::rendezvous::Context>(part.rank, part.size)) {
    GlooStore meeting(store, part, timeout);
    auto device = gloo::transport::tcp::CreateDevice(store.local_address().c_str());
    context_->setTimeout(timeout);
    const std::uint16_t port = store.server().port;
    const Connections before = open_connections(port);
    context_->connectFullMesh(meeting, device);
    const Connections after = open_connections(port);
    std::ranges::set_difference(after, before, std::inserter(connections_, connections_.end()));
    gloo::BarrierOptions all_are_connected(context_);  // who is done at once would leave while others still connect
    gloo::barrier(all_are_connected);
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }

  void all_reduce(Ctx&, Tensor values, Reduction reduction) override {
    switch (values.dtype) {
      case DType::f64: return reduce<double>(values, reduction);
      case DType::f32: return reduce<float>(values, reduction);
      case DType::bf16: return reduce<Bf16>(values, reduction);
      case DType::f16: return reduce<F16>(values, reduction);
      case DType::i64: return reduce<std::int64_t>(values, reduction);
      default: check(false, "no such type is reduced over ranks");
    }
  }

  void broadcast(Ctx&, Tensor values, int root) override {
    gloo::BroadcastOptions options(context_);
    options.setTag(label_);
    options.setOutput(reinterpret_cast<char*>(values.data), values.bytes());
    options.setRoot(root);
    gloo::broadcast(options);
  }

  void all_gather(Ctx&, ConstTensor mine, Tensor all) override {
    gloo::AllgatherOptions options(context_);
    options.setTag(label_);
    const bool in_place = mine.data == all.data + static_cast<std::size_t>(rank()) * mine.bytes();
    if (!in_place) options.setInput(bytes_of(mine), mine.bytes());
    options.setOutput(reinterpret_cast<char*>(all.data), all.bytes());
    gloo::allgather(options);
  }

  void all_to_all(Ctx&, ConstTensor sent, Tensor received) override {
    gloo::AlltoallOptions options(context_);
    options.setTag(label_);
    options.setInput(bytes_of(sent), sent.bytes());
    options.setOutput(reinterpret_cast<char*>(received.data), received.bytes());
    gloo::alltoall(options);
  }

  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override {
    received_.resize(sent.bytes());
    const Tensor rows{received_.data(), sent.dtype, {size(), sum.numel()}, {}};
    all_to_all(ctx, sent, rows);
    switch (sum.dtype) {
      case DType::f32: return add_rows<float>(rows, sum);
      case DType::bf16: return add_rows<Bf16>(rows, sum);
      case DType::f16: return add_rows<F16>(rows, sum);
      default: check(false, "no shares of sums of such a type");
    }
  }

  void barrier(Ctx&) override {
    gloo::BarrierOptions options(context_);
    options.setTag(label_);
    gloo::barrier(options);
  }

  std::unique_ptr<Collective> part(int first, int size) override {
    check(first <= rank() && rank() < first + size && first + size <= this->size(), "a part that this rank is not in");
    return connect({.first = first, .size = size, .rank = rank() - first});
  }
  std::unique_ptr<Collective> counterparts(int size) override {
    check(this->size() % size == 0, "parts of other sizes have no counterparts");
    return connect({.first = rank() % size, .size = this->size() / size, .rank = rank() / size, .stride = size});
  }
  // gloo itself can close its connections, and then whoever waits here is not told.
  void disconnect() override {
    const Connections open = open_connections(store_.server().port);
    for (const auto& [fd, socket] : connections_)
      if (const auto it = open.find(fd); it != open.end() && it->second == socket) ::shutdown(fd, SHUT_RDWR);
  }
  void label_next(std::uint32_t label) override { label_ = label; }

 private:
  // gloo reads inputs through pointers that are not const.
  static char* bytes_of(ConstTensor t) { return reinterpret_cast<char*>(const_cast<std::byte*>(t.data)); }

  // Of this collective's own numbers.
  std::unique_ptr<Collective> connect(RankPart part) {
    part.meeting = fmt::format("{}{}.{}/", part_.meeting, ++parts_, part.first);
    part.first = part_.first + part_.stride * part.first;
    part.stride *= part_.stride;
    return std::make_unique<GlooCollective>(part, store_, timeout_);
  }

  template <class T>
  static void add_rows(Tensor rows, Tensor sum) {
    std::memcpy(sum.data, rows.data, sum.bytes());
    for (std::int64_t r = 1; r < rows.shape[0]; ++r)
      add<T>(sum.data, sum.data, rows.slice(r, 1).data, static_cast<std::size_t>(sum.numel()));
  }

  template <class T>
  void reduce(Tensor values, Reduction reduction) {
    if (values.numel() == 0) return;
    gloo::AllreduceOptions options(context_);
    options.setTag(label_);
    options.setOutput(values.as<T>(), static_cast<std::size_t>(values.numel()));
    options.setReduceFunction(reduction == Reduction::sum ? add<T> : larger<T>);
    gloo::allreduce(options);
  }

  RankPart part_;
  qtrain::Store& store_;
  milliseconds timeout_;
  int parts_ = 0;            ///< that were made of this
  std::uint32_t label_ = 0;  ///< of messages: data of one label never come to a call of another
  std::vector<std::byte> received_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  Connections connections_;  ///< of the context
};

}  // namespace

std::unique_ptr<Collective> connect_gloo(const RankPlace& place, Store& store, milliseconds timeout) {
  return std::make_unique<GlooCollective>(RankPart{.size = place.size, .rank = place.rank}, store, timeout);
}

}  // namespace qtrain
