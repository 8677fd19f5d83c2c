#pragma once
#include <algorithm>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rms_row.h"

/// The rotation of one head and its adjoint, shared by rope and split_rope.
namespace qtrain::ops {

/// Tables of angles, and the place of each token in them.
template <class T>
struct Angles {
  const simd::Acc<T>*cos, *sin;
  const std::int32_t* positions;
  std::int64_t half, count;

  /// Index of the table row of token t.
  std::int64_t row(std::int64_t t) const {
    const std::int64_t p = positions[t];
    check(p >= 0 && p < count, "rope: a position is outside the tables");
    return p * half;
  }
};

template <class T, class Op>
Angles<T> angles_of(const Op& a) {
  return {.cos = a.cos.template as<simd::Acc<T>>(),
          .sin = a.sin.template as<simd::Acc<T>>(),
          .positions = a.positions.template as<std::int32_t>(),
          .half = a.cos.shape[1],
          .count = a.cos.shape[0]};
}

/// (y1, y2) = (x1 cos - x2 sin, x2 cos + x1 sin) for the halves of what is turned; y may be x.
template <class T>
void rotate(T* y, const T* x, const Angles<T>& angles, std::int64_t row) {
  using A = simd::Acc<T>;
  using simd::Vec;
  const std::int64_t half = angles.half;
  simd::each<A>(half, [&](std::int64_t i, auto lanes) {
    const Vec<A> c = simd::load<A>(angles.cos + row + i, lanes), s = simd::load<A>(angles.sin + row + i, lanes);
    const Vec<A> x1 = simd::load<A>(x + i, lanes), x2 = simd::load<A>(x + half + i, lanes);
    simd::store<A>(y + i, x1 * c - x2 * s, lanes);
    simd::store<A>(y + half + i, x2 * c + x1 * s, lanes);
  });
}

/// The inverse rotation; dx may be dy.
template <class To, class T>
void rotate_back(const RowSink<To>& dx, const T* dy, const Angles<T>& angles, std::int64_t row) {
  using A = simd::Acc<T>;
  using simd::Vec;
  const std::int64_t half = angles.half;
  simd::each<A>(half, [&](std::int64_t i, auto lanes) {
    const Vec<A> c = simd::load<A>(angles.cos + row + i, lanes), s = simd::load<A>(angles.sin + row + i, lanes);
    const Vec<A> g1 = simd::load<A>(dy + i, lanes), g2 = simd::load<A>(dy + half + i, lanes);
    write<A>(dx.data + i, g1 * c + g2 * s, lanes, dx.mode);
    write<A>(dx.data + half + i, g2 * c - g1 * s, lanes, dx.mode);
  });
}

}  // namespace qtrain::ops
