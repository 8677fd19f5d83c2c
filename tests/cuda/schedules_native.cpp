#include "tests/cuda/schedules.h"

namespace qtrain::testing {

void for_each_schedule(const std::function<void()>& body) {
  for (int i = 0; i < 3; ++i) body();
}

void with_capability(int, const std::function<void()>&) {}

}  // namespace qtrain::testing
