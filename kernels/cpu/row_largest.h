#pragma once
#include <cmath>

#include "kernels/cpu/loops.h"

namespace qtrain::ops {

/// largest [rows] (f32 or f64) = the largest magnitude of each row of y, or NaN if there is one; nothing if it is
/// empty.
template <class T>
void find_row_largest(Ctx& ctx, const Tensor& largest, const Tensor& y) {
  if (!largest) return;
  const std::int64_t width = y.shape[-1];
  const T* values = y.as<T>();
  dispatch_float(largest.dtype, [&]<class A>() {
    A* to = largest.as<A>();
    for_rows(ctx, y.shape.rows(), width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        A most = 0;
        for (std::int64_t i = r * width; i < (r + 1) * width && !std::isnan(most); ++i) {
          const A size = std::abs(static_cast<A>(values[i]));
          if (size > most || std::isnan(size)) most = size;
        }
        to[r] = most;
      }
    });
  });
}

}  // namespace qtrain::ops
