#include "emulator/nccl/operation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/half.h"

namespace qtrain::stand_in {
namespace {

using emulation::reads;
using emulation::writes;

template <class T>
void reduce_as(std::byte* to, const std::vector<std::vector<std::byte>>& parts, std::size_t count, nccl::RedOp op) {
  auto* out = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](std::size_t part) { return reinterpret_cast<const T*>(parts[part].data())[i]; };
    T sum = value(0);
    for (std::size_t p = 1; p < parts.size(); ++p)
      sum =
          op == nccl::sum ? static_cast<T>(sum + value(p)) : std::max<T>(sum, value(p), [](T a, T b) { return a < b; });
    out[i] = sum;
  }
}

void reduce_parts(const Call& call, const std::vector<std::vector<std::byte>>& parts) {
  auto* to = static_cast<std::byte*>(call.to);
  const auto op = static_cast<nccl::RedOp>(call.detail);
  switch (call.type) {
    case nccl::f64: return reduce_as<double>(to, parts, call.count, op);
    case nccl::f32: return reduce_as<float>(to, parts, call.count, op);
    case nccl::f16: return reduce_as<F16>(to, parts, call.count, op);
    case nccl::bf16: return reduce_as<Bf16>(to, parts, call.count, op);
    case nccl::i64: return reduce_as<std::int64_t>(to, parts, call.count, op);
    default: return;  // rejected by the call
  }
}

std::byte* bytes_at(const void* p, std::size_t offset = 0) {
  return static_cast<std::byte*>(const_cast<void*>(p)) + offset;
}

/// Counts running operations.
class Executing {
 public:
  Executing() { ++executing(); }
  ~Executing() { --executing(); }
  Executing(const Executing&) = delete;
  Executing& operator=(const Executing&) = delete;
};

}  // namespace

Operation::Operation(std::shared_ptr<Communicator> ranks, std::vector<Call> calls, std::int64_t number)
    : ranks_(std::move(ranks)), calls_(std::move(calls)), number_(number) {}

emulation::Work Operation::work() const {
  emulation::Work work{.run = [self = *this] { self.run(); }, .name = "NCCL"};
  work.touches.push_back(emulation::turn_of(&executing()));  // calls of two communicators may wait for each other
  const auto size = static_cast<std::size_t>(ranks_->place().size);
  const bool is_root = ranks_->place().rank == calls_.front().detail;
  for (const Call& c : calls_) {
    const std::size_t bytes = c.count * size_of(c.type), all = bytes * size;
    switch (c.kind) {
      case Descriptor::all_gather:
        work.touches.insert(work.touches.end(), {reads(c.from, bytes), writes(c.to, all)});
        break;
      case Descriptor::reduce_scatter:
        work.touches.insert(work.touches.end(), {reads(c.from, all), writes(c.to, bytes)});
        break;
      case Descriptor::broadcast:
        if (is_root) work.touches.push_back(reads(c.from, bytes));
        work.touches.push_back(writes(c.to, bytes));
        break;
      case Descriptor::send: work.touches.push_back(c.receives ? writes(c.to, bytes) : reads(c.from, bytes)); break;
      default: work.touches.insert(work.touches.end(), {reads(c.from, bytes), writes(c.to, bytes)});
    }
    const auto more = emulation::bytes_of(c.kind, c.from, c.to, c.count, c.type, c.detail, c.receives);
    work.inputs.insert(work.inputs.end(), more.begin(), more.end());
  }
  return work;
}

void Operation::run() const {
  const Executing now;
  if (number_ == ranks_->fails_at_) {
    ranks_->fail_on_the_way();
    while (!ranks_->aborted_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  exchange();
  --ranks_->running_;
}

void Operation::exchange() const {
  if (calls_.front().kind != Descriptor::send) {
    run_collective(calls_.front());
  } else {
    Exchange exchange;
    for (const Call& c : calls_) {
      const std::size_t bytes = c.count * size_of(c.type);
      const Descriptor what{.kind = c.kind, .type = c.type, .count = static_cast<std::int64_t>(c.count)};
      (c.receives ? exchange.receives : exchange.sends)
          .push_back({.peer = c.detail, .what = what, .data = bytes_at(c.receives ? c.to : c.from), .bytes = bytes});
    }
    exchange.run(ranks_->segment_, ranks_->place().rank, ranks_->aborted_);
  }
}

// Every rank tells every other rank what it does, even if no data is transferred between them.
void Operation::greet(Exchange& exchange, const Descriptor& what) const {
  for (int r = 0; r < ranks_->place().size; ++r) {
    if (r == ranks_->place().rank) continue;
    exchange.sends.push_back({.peer = r, .what = what});
    exchange.receives.push_back({.peer = r, .what = what});
  }
}

void Operation::run_collective(const Call& call) const {
  const int me = ranks_->place().rank, size = ranks_->place().size;
  const std::size_t bytes = call.count * size_of(call.type);
  const Descriptor what{.kind = call.kind,
                        .number = number_,
                        .type = call.type,
                        .count = static_cast<std::int64_t>(call.count),
                        .detail = call.detail};
  Exchange exchange;
  greet(exchange, what);
  const bool reduces = call.kind == Descriptor::all_reduce || call.kind == Descriptor::reduce_scatter;
  const bool gathers = call.kind == Descriptor::all_gather;
  // This rank's part is copied first, because received data may overwrite it.
  std::vector<std::vector<std::byte>> parts(static_cast<std::size_t>(size), std::vector<std::byte>(bytes));
  const bool sends = call.kind != Descriptor::broadcast || call.detail == me;
  const std::size_t own = call.kind == Descriptor::reduce_scatter ? bytes * static_cast<std::size_t>(me) : 0;
  auto& mine = parts[static_cast<std::size_t>(me)];
  if (sends && bytes > 0) std::memcpy(mine.data(), bytes_at(call.from, own), bytes);
  for (int r = 0; r < size; ++r) {
    if (r == me) continue;
    const std::size_t to_them = call.kind == Descriptor::reduce_scatter ? bytes * static_cast<std::size_t>(r) : 0;
    if (sends)
      exchange.sends.push_back({.peer = r, .what = what, .data = bytes_at(call.from, to_them), .bytes = bytes});
    if (call.kind != Descriptor::broadcast || call.detail == r)
      exchange.receives.push_back(
          {.peer = r, .what = what, .data = parts[static_cast<std::size_t>(r)].data(), .bytes = bytes});
  }
  if (!exchange.run(ranks_->segment_, me, ranks_->aborted_) || bytes == 0) return;
  if (reduces) return reduce_parts(call, parts);
  for (int r = 0; gathers && r < size; ++r)
    std::memcpy(bytes_at(call.to, bytes * static_cast<std::size_t>(r)), parts[static_cast<std::size_t>(r)].data(),
                bytes);
  if (!gathers) std::memcpy(call.to, parts[static_cast<std::size_t>(call.detail)].data(), bytes);
}

}  // namespace qtrain::stand_in
