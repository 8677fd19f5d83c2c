#include "core/transfer.h"

#include <algorithm>
#include <cstring>

namespace qtrain {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;
constexpr std::size_t kPieceBytes = static_cast<std::size_t>(kPieceElements) * sizeof(double);
constexpr std::size_t kPartAlign = 64;

/// Two chunks of pinned memory: one is copied while the host works on the other.
struct Pieces {
  explicit Pieces(Device device)
      : memory{PinnedMemory(device, kPieceBytes), PinnedMemory(device, kPieceBytes)},
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

std::int64_t pieces_of(ConstTensor t) {
  return (t.numel() + kPieceElements - 1) / kPieceElements;
}

/// Elements of piece `i`, as a part of the flat tensor `t`.
template <class V>
V piece_of(V t, std::int64_t i) {
  const std::int64_t begin = i * kPieceElements;
  return t.slice(begin, std::min(kPieceElements, t.numel() - begin));
}

}  // namespace

void read_pieces(Ctx& ctx, ConstTensor from, const std::function<void(ConstTensor)>& take) {
  if (on_host(from.device)) {
    ctx.synchronize();  // pinned memory that queued copies write to
    return take(flat(from));
  }
  Pieces& pieces = ctx.kept<Pieces>();
  const std::int64_t count = pieces_of(from);
  const auto begin_copy = [&](std::int64_t i) {
    const ConstTensor part = piece_of(flat(from), i);
    ctx.stream().copy(pieces.memory[i % 2].data(), part.data, part.bytes());
    ctx.stream().record(pieces.copied[i % 2]);
  };
  if (count > 0) begin_copy(0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + 1 < count) begin_copy(i + 1);
    pieces.copied[i % 2].synchronize();
    ConstTensor piece = piece_of(flat(from), i);
    piece.data = pieces.memory[i % 2].data();
    piece.device = {};
    take(piece);
  }
}

void write_pieces(Ctx& ctx, Tensor to, const std::function<void(std::int64_t, Tensor)>& make) {
  if (on_host(to.device)) {
    ctx.synchronize();
    return make(0, flat(to));
  }
  Pieces& pieces = ctx.kept<Pieces>();
  for (std::int64_t i = 0; i < pieces_of(to); ++i) {
    const Tensor part = piece_of(flat(to), i);
    Tensor piece = part;
    piece.data = pieces.memory[i % 2].data();
    piece.device = {};
    pieces.copied[i % 2].synchronize();
    make(i * kPieceElements, piece);
    ctx.stream().copy(part.data, piece.data, part.bytes());
    ctx.stream().record(pieces.copied[i % 2]);
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
