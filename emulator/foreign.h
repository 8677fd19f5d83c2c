#pragma once
#include "emulator/device.h"

/// What a library that is opened while the program runs (emulator/nccl) asks of the device, as NCCL asks the driver.
/// Programs of the harness export these.
namespace qtrain::emulation {

/// A touch of work that must not run beside other work of the same owner, as the calls of NCCL: an address
/// that no memory has.
inline constexpr std::uintptr_t kTurn = std::uintptr_t{1} << 63;
inline Touch turn_of(const void* owner) {
  return writes(at_address(reinterpret_cast<std::uintptr_t>(owner) | kTurn), 1);
}
inline bool is_turn(const Touch& t) {
  return (reinterpret_cast<std::uintptr_t>(t.data) & kTurn) != 0;
}

}  // namespace qtrain::emulation

extern "C" {
/// Queues work that is not a kernel. Before it runs, its touches are checked; afterwards what it writes has values.
/// What `work.run` throws is an error of the device.
void qtrain_emulated_enqueue(void* stream, const qtrain::emulation::Work& work);
/// Takes memory of the device for good.
void qtrain_emulated_take(std::size_t bytes);
/// The device of the calling thread.
int qtrain_emulated_device();
/// Whether the calling thread records what is queued on `stream`.
bool qtrain_emulated_records(void* stream);
}
