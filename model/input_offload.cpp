#include "model/input_offload.h"

namespace qtrain {

InputOffload::InputOffload(Device device, std::int64_t groups)
    : groups_(groups),
      copies_(device),
      reached_(device),
      stored_{Event(device), Event(device)},
      back_{Event(device), Event(device)} {}

void InputOffload::store(Ctx& ctx, std::int64_t group, ConstTensor input, Tensor host) {
  if (!travels(group)) return;
  ctx.stream().record(reached_);
  copies_.wait(reached_);
  copies_.copy(host.data, input.data, input.bytes());
  copies_.record(stored_[group % 2]);
}

void InputOffload::make_room(Ctx& ctx, std::int64_t group) {
  if (travels(group - 2)) ctx.stream().wait(stored_[group % 2]);
}

void InputOffload::await(Ctx& ctx, std::int64_t group) {
  if (travels(group)) ctx.stream().wait(back_[group % 2]);
}

void InputOffload::fetch(Ctx& ctx, std::int64_t group, Tensor input, ConstTensor host) {
  if (!travels(group)) return;
  ctx.stream().record(reached_);
  copies_.wait(reached_);
  copies_.copy(input.data, host.data, input.bytes());
  copies_.record(back_[group % 2]);
}

}  // namespace qtrain
