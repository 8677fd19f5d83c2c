#pragma once
#include <bit>

#include "kernels/cpu/expand8.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops.h"

/// LLM.int8 weights as CPU ops read them.
namespace qtrain::ops {

/// Any row, as T.
template <class T>
class RowExpansion8 {
 public:
  RowExpansion8() {
    if (cpu_isa() == CpuIsa::avx2) return;
    if constexpr (std::is_same_v<T, float>) wide_ = kExpandRow8F32Avx512;
    if constexpr (std::is_same_v<T, Bf16>) wide_ = kExpandRow8Bf16Avx512;
  }
  void operator()(const Row8& row, T* y) const {
    const std::int64_t whole = wide_ ? row.count / 32 * 32 : 0;
    if (whole > 0) wide_({row.codes, row.scale, whole}, y);
    if (whole < row.count) narrow({row.codes + whole, row.scale, row.count - whole}, y + whole);
  }

 private:
  static void narrow(const Row8& row, T* y) {
    const simd::Vec<float> scale = simd::broadcast(row.scale), unit = simd::broadcast(kUnit8);
    simd::each<float>(row.count, [&](std::int64_t i, auto lanes) {
      std::int8_t eight[8] = {};
      std::memcpy(eight, row.codes + i, static_cast<std::size_t>(static_cast<int>(lanes)));
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(eight));
      simd::store<float>(y + i, simd::Vec<float>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))) * scale * unit,
                         lanes);
    });
  }

  ExpandRow8 wide_ = nullptr;
};

}  // namespace qtrain::ops
