#include <utility>

#include "emulator/device.h"
#include "tests/cuda/schedules.h"

namespace qtrain::testing {

void for_each_schedule(const std::function<void()>& body) {
  using namespace emulation;
  const Settings before = settings();
  for (const Settings& s :
       {Settings{.order = Order::reverse},
        Settings{.order = Order::random, .streams = Timing::random, .copies = Timing::random},
        Settings{.order = Order::random, .streams = Timing::early, .copies = Timing::early, .seed = 2}}) {
    settings() = s;
    settings().ptx = before.ptx;
    body();
  }
  settings() = before;
}

void with_capability(int capability, const std::function<void()>& body) {
  emulation::Settings& settings = emulation::settings();
  const int before = std::exchange(settings.capability, capability);
  body();
  settings.capability = before;
}

}  // namespace qtrain::testing
