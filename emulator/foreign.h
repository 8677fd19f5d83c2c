#pragma once
#include "emulator/device.h"

/// The device functions that a library loaded at run time (emulator/nccl) calls, as NCCL calls the driver. Programs
/// with the harness export them.
namespace qtrain::emulation {

/// A touch for work that must not run concurrently with other work of the same owner, such as NCCL calls: an address
/// outside all memory.
inline constexpr std::uintptr_t kTurn = std::uintptr_t{1} << 63;
inline Touch turn_of(const void* owner) {
  return writes(at_address(reinterpret_cast<std::uintptr_t>(owner) | kTurn), 1);
}
inline bool is_turn(const Touch& t) {
  return (reinterpret_cast<std::uintptr_t>(t.data) & kTurn) != 0;
}

}  // namespace qtrain::emulation

extern "C" {
/// Queues work that is not a kernel. Its touches are checked before it runs; afterwards what it writes counts as
/// initialized. An exception from `work.run` is a device error.
void qtrain_emulated_enqueue(void* stream, const qtrain::emulation::Work& work);
/// Allocates device memory permanently.
void qtrain_emulated_take(std::size_t bytes);
/// The selected device of the calling thread.
int qtrain_emulated_device();
/// The compute capability of the devices, 10 * major + minor.
int qtrain_emulated_capability();
/// Whether the calling thread is recording the work of `stream`.
bool qtrain_emulated_records(void* stream);
}
