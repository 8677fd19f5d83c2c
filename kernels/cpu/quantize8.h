#pragma once
#include "kernels/cpu/expand8.h"
#include "kernels/cpu/loops.h"

/// Access to LLM.int8 weights for CPU ops.
namespace qtrain::ops {

/// Expands rows to T.
template <class T>
class RowExpansion8 {
 public:
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
      simd::store<float>(y + i, simd::to_floats(simd::widen_bytes(eight)) * scale * unit, lanes);
    });
  }

  ExpandRow8 wide_ = whole_row8(dtype_of<T>);  ///< may be null
};

}  // namespace qtrain::ops
