#pragma once
#include <cmath>

#include "kernels/magnitude.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {

/// Lengths of the rows of W + scale * B A for one shape.
struct RowNormCase {
  std::int64_t out, in, ranks;
  static constexpr double kScale = 0.5;

  Array w(DType d) const { return random(d, {out, in}, 1); }
  Array a(DType d) const { return random(d, {ranks, in}, 2); }
  Array b(DType d) const { return random(d, {out, ranks}, 3); }

  Array measured(Ctx& ctx, DType weights, DType factors) const {
    Array norm(factors, {out}), wide = w(weights), first = a(factors), second = b(factors);
    ops::row_norms(ctx, {.norm = norm, .w = wide, .a = first, .b = second, .scale = kScale});
    return norm;
  }
  std::vector<double> formula(DType weights) const {
    const Array wide = w(weights), first = a(DType::f64), second = b(DType::f64);
    std::vector<double> norms;
    for (std::int64_t row = 0; row < out; ++row) {
      double squares = 0;
      for (std::int64_t k = 0; k < in; ++k) {
        double v = wide.get(row * in + k);
        for (std::int64_t r = 0; r < ranks; ++r) v += kScale * second.get(row * ranks + r) * first.get(r * in + k);
        squares += v * v;
      }
      norms.push_back(std::sqrt(squares));
    }
    return norms;
  }
};
inline constexpr RowNormCase kRowNormCases[] = {{1, 1, 1}, {19, 37, 3}, {8, 1030, 16}, {301, 64, 5}};

}  // namespace qtrain::testing
