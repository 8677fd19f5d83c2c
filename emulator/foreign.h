#pragma once
#include "emulator/device.h"

/// What a library that is opened while the program runs (emulator/nccl) asks of the device, as NCCL asks the driver.
/// Programs of the harness export these.
extern "C" {
/// Queues work that is not a kernel. Before it runs, its touches are checked; afterwards what it writes has values.
/// What `work.run` throws is an error of the device.
void qtrain_emulated_enqueue(void* stream, const qtrain::emulation::Work& work);
/// The device of the calling thread.
int qtrain_emulated_device();
/// Whether the calling thread records what is queued on `stream`.
bool qtrain_emulated_records(void* stream);
}
