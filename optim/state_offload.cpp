#include "optim/state_offload.h"

#include <algorithm>

namespace qtrain {
namespace {

constexpr std::size_t kBuffers = 2;

/// Bytes of a tensor, rounded up to the alignment of tensors.
std::size_t aligned_bytes(const Tensor& t) {
  constexpr std::size_t kAlign = 256;
  return (t.bytes() + kAlign - 1) / kAlign * kAlign;
}

/// All tensors of a chunk that are copied.
template <class Chunk>
auto tensors_of(Chunk& chunk) {
  std::vector<decltype(chunk.state.data())> all;
  for (auto& t : chunk.state) all.push_back(&t);
  if (chunk.value) all.push_back(&*chunk.value);
  return all;
}

std::size_t bytes_of(const StateChunk& chunk) {
  std::size_t sum = 0;
  for (const Tensor* t : tensors_of(chunk)) sum += aligned_bytes(*t);
  return sum;
}

}  // namespace

std::size_t StateOffload::bytes(const std::vector<StateChunk>& chunks) {
  std::size_t largest = 0;
  for (const StateChunk& chunk : chunks) largest = std::max(largest, bytes_of(chunk));
  return kBuffers * largest;
}

StateOffload::StateOffload(Device device, std::vector<StateChunk> chunks)
    : device_(device),
      chunks_(std::move(chunks)),
      memory_(device_, bytes(chunks_), "optimizer state buffers"),
      copies_(device_),
      reached_(device_),
      settled_(device_),
      fetched_{Event(device_), Event(device_)},
      updated_{Event(device_), Event(device_)} {}

StateChunk StateOffload::on_device(std::size_t number) const {
  StateChunk chunk = chunks_[number];
  std::byte* memory = memory_.data() + number % kBuffers * (memory_.bytes() / kBuffers);
  for (Tensor* t : tensors_of(chunk)) {
    t->data = memory;
    t->device = device_;
    memory += aligned_bytes(*t);
  }
  return chunk;
}

void StateOffload::copy(const StateChunk& to, const StateChunk& from) {
  const auto targets = tensors_of(to), sources = tensors_of(from);
  for (std::size_t i = 0; i < sources.size(); ++i)
    copies_.copy(targets[i]->data, sources[i]->data, sources[i]->bytes());
}

// The buffer is free: the chunk that used it was copied back on the same stream.
void StateOffload::fetch(std::size_t number) {
  copy(on_device(number), chunks_[number]);
  copies_.record(fetched_[number % kBuffers]);
}

void StateOffload::store(std::size_t number) {
  copies_.wait(updated_[number % kBuffers]);
  copy(chunks_[number], on_device(number));
}

void StateOffload::run(Ctx& ctx, const std::function<void(const StateChunk&)>& work) {
  if (chunks_.empty()) return;
  ctx.stream().record(reached_);
  copies_.wait(reached_);
  fetch(0);
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (i + 1 < chunks_.size()) fetch(i + 1);
    ctx.stream().wait(fetched_[i % kBuffers]);
    work(on_device(i));
    ctx.stream().record(updated_[i % kBuffers]);
    store(i);
  }
  copies_.record(settled_);
  ctx.stream().wait(settled_);
}

}  // namespace qtrain
