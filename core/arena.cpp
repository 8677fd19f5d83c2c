#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>

namespace qtrain {
namespace {

constexpr std::size_t kAlign = 64;

}  // namespace

Arena::~Arena() {
  if (base_) munmap(base_, planned_);
}

Tensor Arena::take(DType dtype, Shape shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  const std::size_t begin = used_;
  used_ += (bytes + kAlign - 1) / kAlign * kAlign;
  if (base_ && used_ > planned_)
    fail(ErrorKind::internal, {.cause = "arena '" + name_ + "' was planned for " + std::to_string(planned_) +
                                        " bytes and is asked for " + std::to_string(used_)});
  planned_ = std::max(planned_, used_);
  return {base_ ? base_ + begin : nullptr, dtype, shape, device_};
}

void Arena::commit() {
  check(!base_, "an arena is committed once");
  used_ = 0;
  planned_ = std::max<std::size_t>(planned_, kAlign);
  void* p = mmap(nullptr, planned_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(ErrorKind::memory, {.cause = "cannot allocate " + std::to_string(planned_ >> 20) + " MiB for " + name_,
                             .remedy = "lower per_device_train_batch_size or max_length"});
  madvise(p, planned_, MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(p);
}

}  // namespace qtrain
