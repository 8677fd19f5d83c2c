#pragma once
#include <cstdint>

#include "emulator/device.h"
#include "emulator/fiber.h"

/// Checks every memory access of kernels: bounds, uninitialized values, and races.
namespace qtrain::emulation {

/// Bits of a record of an access: launch serial, block, thread, and epoch.
inline constexpr int kSerialBits = 18, kBlockBits = 20, kThreadBits = 10, kEpochBits = 16;
static_assert(kSerialBits + kBlockBits + kThreadBits + kEpochBits == 64);
inline constexpr std::uint32_t kSerials = 1u << kSerialBits;

/// The records of the last accesses, one for each `unit` bytes of device and shared memory.
struct AccessRecords {
  std::uintptr_t base;
  std::size_t unit;

  constexpr std::size_t bytes_for(std::size_t memory) const { return memory / unit * sizeof(std::uint64_t); }
};
/// Accesses to single bytes have separate records, because nearly all accesses are wider.
inline constexpr AccessRecords kWideWrites{kWriteBase, 2}, kWideReads{kReadBase, 2}, kByteWrites{0x3200'0000'0000, 1},
    kByteReads{kReadBase + 4 * kDeviceBytes, 1};
inline constexpr AccessRecords kAccessRecords[] = {kWideWrites, kWideReads, kByteWrites, kByteReads};

/// Forgets the accesses to device memory that is freed.
void forget_accesses(const void* p, std::size_t bytes);
/// Forgets all accesses, for when serials wrap around.
void forget_accesses();

/// Whether some of these bytes are allocated but uninitialized.
bool lacks_value(const void* p, std::size_t bytes);

/// Checks only that an access of the calling thread to device or shared memory is in order with those of others.
void watch_order(const void* p, std::size_t bytes, AccessKind kind, Place place);

/// Checks an access of the calling thread to any address.
void watch_access(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place);

}  // namespace qtrain::emulation
