#include "core/transfer.h"

#include <algorithm>
#include <cstring>

namespace qtrain {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;
constexpr std::size_t kChunkBytes = static_cast<std::size_t>(kChunkElements) * sizeof(double);
constexpr std::size_t kPartAlign = 64;

/// Two chunks of pinned memory: one is copied while the host works on the other.
struct Chunks {
  explicit Chunks(Device device)
      : memory{PinnedMemory(device, kChunkBytes), PinnedMemory(device, kChunkBytes)},
        copied{Event(device), Event(device)} {}

  PinnedMemory memory[2];
  Event copied[2];
};

bool on_host(Device device) {
  return device.kind == DeviceKind::cpu;
}

template <class V>
V flat(V t) {
  return t.reshaped({t.numel()});
}

std::int64_t chunks_of(ConstTensor t) {
  return (t.numel() + kChunkElements - 1) / kChunkElements;
}

/// Elements of chunk `i`, as a part of the flat tensor `t`.
template <class V>
V chunk_of(V t, std::int64_t i) {
  const std::int64_t begin = i * kChunkElements;
  return t.slice(begin, std::min(kChunkElements, t.numel() - begin));
}

}  // namespace

void read_chunks(Ctx& ctx, ConstTensor from, const std::function<void(ConstTensor)>& take) {
  if (on_host(from.device)) {
    ctx.synchronize();  // `from` may be pinned memory that queued copies write to
    return take(flat(from));
  }
  Chunks& chunks = ctx.kept<Chunks>();
  const std::int64_t count = chunks_of(from);
  const auto begin_copy = [&](std::int64_t i) {
    const ConstTensor part = chunk_of(flat(from), i);
    ctx.stream().copy(chunks.memory[i % 2].data(), part.data, part.bytes());
    ctx.stream().record(chunks.copied[i % 2]);
  };
  if (count > 0) begin_copy(0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + 1 < count) begin_copy(i + 1);
    chunks.copied[i % 2].synchronize();
    ConstTensor chunk = chunk_of(flat(from), i);
    chunk.data = chunks.memory[i % 2].data();
    chunk.device = {};
    take(chunk);
  }
  ctx.synchronize();  // throws if the work that wrote `from` failed
}

void write_chunks(Ctx& ctx, Tensor to, const std::function<void(std::int64_t, Tensor)>& make) {
  if (on_host(to.device)) {
    ctx.synchronize();
    return make(0, flat(to));
  }
  Chunks& chunks = ctx.kept<Chunks>();
  for (std::int64_t i = 0; i < chunks_of(to); ++i) {
    const Tensor part = chunk_of(flat(to), i);
    Tensor chunk = part;
    chunk.data = chunks.memory[i % 2].data();
    chunk.device = {};
    chunks.copied[i % 2].synchronize();
    make(i * kChunkElements, chunk);
    ctx.stream().copy(part.data, chunk.data, part.bytes());
    ctx.stream().record(chunks.copied[i % 2]);
  }
}

StagingBuffer::StagingBuffer(Device device, std::size_t bytes)
    : device_(device, bytes, "small inputs"),
      host_{PinnedMemory(device, bytes), PinnedMemory(device, bytes)},
      sent_{Event(device), Event(device)} {}

std::size_t StagingBuffer::append(std::span<const std::byte> part) {
  if (used_ == 0) sent_[next_].synchronize();
  const std::size_t begin = used_;
  check(begin + part.size() <= device_.bytes(), "a transfer is larger than its staging buffer");
  if (!part.empty()) std::memcpy(host_[next_].data() + begin, part.data(), part.size());
  used_ += std::max((part.size() + kPartAlign - 1) / kPartAlign * kPartAlign, kPartAlign);
  return begin;
}

void StagingBuffer::send(Ctx& ctx) {
  ctx.stream().copy(device_.data(), host_[next_].data(), std::min(used_, device_.bytes()));
  ctx.stream().record(sent_[next_]);
  next_ = (next_ + 1) % kBuffers;
  used_ = 0;
}

DeviceNumbers::DeviceNumbers(Device device, int count)
    : memory_(device, bytes(count), "sums"),
      host_(device, memory_.bytes()),
      all_{memory_.data(), DType::f64, {count}, device} {}

void DeviceNumbers::clear(Ctx& ctx) {
  ctx.stream().fill(all_.data, 0, all_.bytes());
}

std::vector<double> DeviceNumbers::read(Ctx& ctx) const {
  ctx.stream().copy(host_.data(), all_.data, all_.bytes());
  ctx.synchronize();
  const auto* values = reinterpret_cast<const double*>(host_.data());
  return {values, values + all_.numel()};
}

Tensor HostCopy::of(Ctx& ctx, Tensor from) {
  if (on_host(from.device)) return from;
  if (memory_.bytes() < from.bytes()) memory_ = PinnedMemory(device_, from.bytes());
  ctx.stream().copy(memory_.data(), from.data, from.bytes());
  ctx.synchronize();
  return {memory_.data(), from.dtype, from.shape, {}};
}

}  // namespace qtrain
