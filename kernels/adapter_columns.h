#pragma once
#include <array>

#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Puts the adapters of layers beside their weights: y [N, K + R] = [W | diag(B_1, B_2, ...)], where W [N, K] are the
/// weights of all layers one below the other, B_i [N_i, r_i], and R is the sum of the ranks. So [x | x A^T] y^T is the
/// result of the layers with their adapters, and dy y is the gradient of x through W beside that of x A^T.
struct AdapterColumns {
  static constexpr std::size_t kMaxLayers = 4;
  struct Layer {
    std::int64_t rows = 0;  ///< N_i
    ConstTensor w = {};     ///< in y's type; absent for all layers if y already holds W
    ConstTensor b = {};     ///< in y's type or f32; absent for a layer without an adapter

    std::int64_t rank() const { return b ? b.shape[1] : 0; }
  };
  Tensor y;
  std::int64_t y_stride;  ///< elements from one row to the next, at least K + R; those after a row are undefined
  std::array<Layer, kMaxLayers> layers;

  std::int64_t ranks() const {
    std::int64_t sum = 0;
    for (const Layer& l : layers) sum += l.rank();
    return sum;
  }
  std::int64_t inputs() const { return y.shape[1] - ranks(); }
  bool has_weights() const { return static_cast<bool>(layers.front().w); }
};
void run_cpu(Ctx&, const AdapterColumns&);
void run_cuda(Ctx&, const AdapterColumns&);

inline void adapter_columns(Ctx& ctx, const AdapterColumns& a) {
  check(a.y.shape.rank == 2 && a.y_stride >= a.y.shape[1], "adapter_columns: y is a matrix whose rows do not overlap");
  std::int64_t rows = 0;
  for (const AdapterColumns::Layer& l : a.layers) {
    rows += l.rows;
    check(l.rows == 0 || static_cast<bool>(l.w) == a.has_weights(), "adapter_columns: all weights are given, or none");
    check(!l.w || (l.w.dtype == a.y.dtype && l.w.numel() == l.rows * a.inputs()),
          "adapter_columns: weights are [N_i, K] in y's type");
    check(!l.b || (l.b.shape[0] == l.rows && (l.b.dtype == a.y.dtype || l.b.dtype == DType::f32)),
          "adapter_columns: B is [N_i, r_i] in y's type or f32");
  }
  check(rows == a.y.shape[0], "adapter_columns: another number of rows");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
