#include "emulator/foreign.h"

#include <exception>

#include "emulator/device_memory.h"
#include "emulator/driver.h"

namespace {

using namespace qtrain::emulation;

void run_checked(const Work& work) {
  for (const Touch& t : work.touches)
    if (!is_turn(t)) (t.writes ? check_writable : check_readable)(t.data, t.bytes, work.name);
  try {
    work.run();
  } catch (const qtrain::Error&) {
    throw;
  } catch (const std::exception& e) {
    qtrain::fail(qtrain::ErrorKind::internal, {.cause = e.what()});
  }
  for (const Touch& t : work.touches)
    if (t.writes && !is_turn(t)) mark(const_cast<void*>(t.data), t.bytes, State::initialized);
}

}  // namespace

void qtrain_emulated_enqueue(void* stream, const Work& work) {
  enqueue(stream,
          {.run = [work] { run_checked(work); }, .name = work.name, .inputs = work.inputs, .touches = work.touches});
}

void qtrain_emulated_take(std::size_t bytes) {
  if (!DeviceHeap::instance().allocate(bytes))
    qtrain::fail(qtrain::ErrorKind::internal, {.cause = "NCCL: out of memory"});
}

int qtrain_emulated_device() {
  return Driver::instance().selected();
}

int qtrain_emulated_capability() {
  return settings().capability;
}

bool qtrain_emulated_records(void* stream) {
  const auto& recording = Driver::instance().recording();
  return recording && recording->covers(stream);
}
