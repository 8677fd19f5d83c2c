#pragma once
#include <array>
#include <cstdint>

namespace qtrain {

/// The vector extensions that the CPU kernels support, each including the previous ones.
enum class CpuIsa : std::uint8_t { avx2, avx512, avx512_bf16 };
inline constexpr std::array kCpuIsas{"avx2", "avx512", "avx512_bf16"};

}  // namespace qtrain
