#pragma once
#include <algorithm>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rms_row.h"

/// The rotation of one head and its gradient, shared by rope and split_rope.
namespace qtrain::ops {

/// The tables of angles, and the position of each token.
template <class T>
struct Angles {
  const simd::Acc<T>*cos, *sin;
  const std::int32_t* positions;
  std::int64_t half, count;

  /// Offset of token t's row in the tables.
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

template <class A>
struct RotaryPair {
  simd::Vec<A> cos, sin, first, second;
};

/// Calls body(i, pair, lanes) for the elements i of the first half of the rotated part.
template <class T, class Body>
void each_pair(const T* x, const Angles<T>& angles, std::int64_t row, const Body& body) {
  using A = simd::Acc<T>;
  simd::each<A>(angles.half, [&](std::int64_t i, auto lanes) {
    body(i,
         RotaryPair<A>{.cos = simd::load<A>(angles.cos + row + i, lanes),
                       .sin = simd::load<A>(angles.sin + row + i, lanes),
                       .first = simd::load<A>(x + i, lanes),
                       .second = simd::load<A>(x + angles.half + i, lanes)},
         lanes);
  });
}

/// (y1, y2) = (x1 cos - x2 sin, x2 cos + x1 sin) for the two halves of the rotated part; y may be x.
template <class T>
void rotate(T* y, const T* x, const Angles<T>& angles, std::int64_t row) {
  using A = simd::Acc<T>;
  each_pair(x, angles, row, [&](std::int64_t i, const RotaryPair<A>& p, auto lanes) {
    simd::store<A>(y + i, p.first * p.cos - p.second * p.sin, lanes);
    simd::store<A>(y + angles.half + i, p.second * p.cos + p.first * p.sin, lanes);
  });
}

/// The inverse rotation; dx may be dy.
template <class To, class T>
void rotate_back(const RowSink<To>& dx, const T* dy, const Angles<T>& angles, std::int64_t row) {
  using A = simd::Acc<T>;
  each_pair(dy, angles, row, [&](std::int64_t i, const RotaryPair<A>& p, auto lanes) {
    write<A>(dx.data + i, p.first * p.cos + p.second * p.sin, lanes, dx.mode);
    write<A>(dx.data + angles.half + i, p.second * p.cos - p.first * p.sin, lanes, dx.mode);
  });
}

}  // namespace qtrain::ops
