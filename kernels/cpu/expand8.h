#pragma once
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, as gemm_tile.h.
namespace qtrain::ops {

/// Codes of one row of an LLM.int8 weight: y[0, count) = codes * scale * f32(1 / 127), each product rounded.
struct Row8 {
  const std::int8_t* codes;
  float scale;
  std::int64_t count;
};
inline constexpr float kUnit8 = 7.874015718698502e-3F;  // 1 / 127 as bitsandbytes has it

using ExpandRow8 = void (*)(const Row8&, void* y);
/// For y in f32 and in bf16, of a count that is a multiple of 32.
extern const ExpandRow8 kExpandRow8F32Avx512, kExpandRow8Bf16Avx512;

}  // namespace qtrain::ops
