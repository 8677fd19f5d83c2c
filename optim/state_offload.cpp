#include "optim/state_offload.h"

#include <algorithm>

namespace qtrain {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 22;
constexpr std::size_t kBuffers = 2, kMoments = 2;

/// Bytes of one moment of the largest piece, rounded up to the alignment of tensors.
std::size_t piece_bytes(const ParamStore& state) {
  constexpr std::size_t kAlign = 256;
  std::size_t most = 0;
  for (const Param& p : state.all())
    most = std::max(most,
                    static_cast<std::size_t>(std::min(p.spec.shape.numel(), kPieceElements)) * size_of(p.spec.dtype));
  return (most + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

std::size_t StateOffload::bytes(const ParamStore& state) {
  return kBuffers * kMoments * piece_bytes(state);
}

StateOffload::StateOffload(Device device, ParamStore& state)
    : device_(device),
      memory_(device_, bytes(state), "optimizer state on its way"),
      copies_(device_),
      reached_(device_),
      settled_(device_),
      fetched_{Event(device_), Event(device_)},
      updated_{Event(device_), Event(device_)} {
  const auto& all = state.all();
  for (std::size_t i = 0; i + 1 < all.size(); i += kMoments) {
    const std::int64_t n = all[i].value.numel();
    const Tensor first = all[i].value.reshaped({n}), second = all[i + 1].value.reshaped({n});
    for (std::int64_t begin = 0; begin < n; begin += kPieceElements) {
      const std::int64_t count = std::min(kPieceElements, n - begin);
      parts_.push_back({i / kMoments, begin, {first.slice(begin, count), second.slice(begin, count)}});
    }
  }
}

StateOffload::Piece StateOffload::on_device(std::size_t number) const {
  const Part& part = parts_[number];
  const std::size_t buffer = memory_.bytes() / kBuffers;
  std::byte* memory = memory_.data() + number % kBuffers * buffer;
  const auto at = [&](std::byte* data, Tensor t) {
    t.data = data;
    t.device = device_;
    return t;
  };
  return {part.pair, part.begin, {at(memory, part.host.first), at(memory + buffer / kMoments, part.host.second)}};
}

// The buffer is free: the piece that had it went back on the same stream.
void StateOffload::fetch(std::size_t number) {
  const Moments host = parts_[number].host, device = on_device(number).moments;
  copies_.copy(device.first.data, host.first.data, host.first.bytes());
  copies_.copy(device.second.data, host.second.data, host.second.bytes());
  copies_.record(fetched_[number % kBuffers]);
}

void StateOffload::store(std::size_t number) {
  const Moments host = parts_[number].host, device = on_device(number).moments;
  copies_.wait(updated_[number % kBuffers]);
  copies_.copy(host.first.data, device.first.data, host.first.bytes());
  copies_.copy(host.second.data, device.second.data, host.second.bytes());
}

void StateOffload::run(Ctx& ctx, const std::function<void(const Piece&)>& work) {
  if (parts_.empty()) return;
  ctx.stream().record(reached_);
  copies_.wait(reached_);
  fetch(0);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (i + 1 < parts_.size()) fetch(i + 1);
    ctx.stream().wait(fetched_[i % kBuffers]);
    work(on_device(i));
    ctx.stream().record(updated_[i % kBuffers]);
    store(i);
  }
  copies_.record(settled_);
  ctx.stream().wait(settled_);
}

}  // namespace qtrain
