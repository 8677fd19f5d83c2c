#pragma once
#include <cstdint>

#include "emulator/fiber.h"

/// Checks every memory access of kernels: bounds, uninitialized values, and races.
namespace qtrain::emulation {

/// The last access to two bytes: launch serial, block, thread, and epoch.
inline constexpr int kSerialBits = 18, kBlockBits = 20, kThreadBits = 10, kEpochBits = 16;
static_assert(kSerialBits + kBlockBits + kThreadBits + kEpochBits == 64);
inline constexpr std::uint32_t kSerials = 1u << kSerialBits;

/// Forgets all accesses, for when serials wrap around.
void forget_accesses();

/// Whether some of these bytes are allocated but uninitialized.
bool lacks_value(const void* p, std::size_t bytes);

/// Checks an access of the calling thread to any address.
void watch_access(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place);

}  // namespace qtrain::emulation
