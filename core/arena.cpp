#include "core/arena.h"

#include <algorithm>

#include "core/device/backend.h"

namespace qtrain {
namespace {

constexpr std::size_t kAlign = 64, kCudaAlign = 256;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Tensor Arena::take(DType dtype, Shape shape) {
  return place(used_, dtype, shape);
}

Tensor Arena::extend(DType dtype, Shape shape) {
  check(end_ % size_of(dtype) == 0, "a tensor does not fit after one of another type");
  return place(end_, dtype, shape);
}

Tensor Arena::place(std::size_t begin, DType dtype, Shape shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  end_ = begin + bytes;
  used_ = on_cuda() ? rounded_up(end_ + cuda::guard_bytes(), kCudaAlign) : rounded_up(end_, kAlign);
  if (committed() && used_ > planned_)
    fail(ErrorKind::internal, {.cause = "arena '" + name_ + "' was planned for " + std::to_string(planned_) +
                                        " bytes, but layout takes " + std::to_string(used_)});
  planned_ = std::max(planned_, used_);
  std::byte* memory = placement_ == Placement::device ? memory_.data() : pinned_.data();
  std::byte* base = memory ? memory + begin : nullptr;
  if (base && on_cuda()) cuda::open({base, bytes});
  return {base, dtype, shape, placement_ == Placement::device ? device_ : Device{}};
}

void Arena::commit() {
  check(!committed(), "an arena is committed once");
  committed_ = true;
  used_ = end_ = 0;
  if (planned_ == 0) return;
  if (placement_ == Placement::device)
    memory_ = DeviceMemory(device_, planned_, name_);
  else
    pinned_ = PinnedMemory(device_, planned_);
  if (on_cuda()) cuda::fence({memory_.data(), memory_.bytes()});
}

}  // namespace qtrain
