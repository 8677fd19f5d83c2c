#include "core/memory_reserve.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace qtrain {
namespace {

std::atomic<void*> reserve = nullptr;

void give_back() {
  std::free(reserve.exchange(nullptr));
  throw std::bad_alloc();
}

}  // namespace

void reserve_memory_for_errors() {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  if (reserve) return;
  std::free(reserve.exchange(std::malloc(kBytes)));
  std::set_new_handler(give_back);
}

}  // namespace qtrain
