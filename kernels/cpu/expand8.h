#pragma once
#include <cstdint>

// Only plain declarations here: this header is compiled for several instruction sets, as gemm_tile.h.
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
inline constexpr float kUnit8 = 7.874015718698502e-3F;  // 1 / 127 as bitsandbytes has it

/// Of a count that is a multiple of 32.
using ExpandRow8 = void (*)(const Row8&, void* y);
/// The widest units' own, for y of a type: null where those of all kernels do it.
ExpandRow8 whole_row8(DType y);

}  // namespace qtrain::ops
