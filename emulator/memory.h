#pragma once
#include <cstdint>

#include "emulator/fiber.h"

/// The watch over the memory that kernels touch: bounds, values that were never written, and races.
namespace qtrain::emulation {

/// The last access to two bytes: serial of the launch, block, thread, and the epoch of the thread.
inline constexpr int kSerialBits = 18, kBlockBits = 20, kThreadBits = 10, kEpochBits = 16;
static_assert(kSerialBits + kBlockBits + kThreadBits + kEpochBits == 64);
inline constexpr std::uint32_t kSerials = 1u << kSerialBits;

/// Forgets all accesses, for when the serials begin anew.
void forget_accesses();

/// Whether some of these bytes belong to something, but nothing has been written to them.
bool lacks_value(const void* p, std::size_t bytes);

/// Judges an access of the calling thread to any address.
void watch_access(Fiber& self, std::uintptr_t address, std::size_t bytes, AccessKind kind, Place place);

}  // namespace qtrain::emulation
