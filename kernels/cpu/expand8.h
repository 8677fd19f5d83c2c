#pragma once
#include <cstdint>

// Only plain declarations: this header is compiled for several instruction sets, like gemm_tile.h.
namespace qtrain {
enum class DType : std::uint8_t;
}
namespace qtrain::ops {

/// Codes of one row of an LLM.int8 weight: y[0, count) = codes * scale * f32(1 / 127), each product rounded.
struct Row8 {
  const std::int8_t* codes;
  float scale;
  std::int64_t count;
};
inline constexpr float kUnit8 = 7.874015718698502e-3F;  // 1 / 127 as in bitsandbytes

/// `count` must be a multiple of 32.
using ExpandRow8 = void (*)(const Row8&, void* y);
/// The implementation for the widest vector extension, for y of this type; null if the generic code is used.
ExpandRow8 whole_row8(DType y);

}  // namespace qtrain::ops
