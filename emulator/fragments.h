#pragma once
#include <bit>

#include "core/half.h"
#include "emulator/thread.h"

namespace qtrain::emulation {

/// The value in the lower half of a word of a fragment.
inline float low_half(MmaKind kind, std::uint32_t bits) {
  if (kind == MmaKind::bf16_k16) return std::bit_cast<float>(bits << 16);
  F16 h;
  h.bits = static_cast<std::uint16_t>(bits);
  return h;
}

}  // namespace qtrain::emulation
