#pragma once
#include <arm_neon.h>

namespace qtrain::ops {

/// Transposes a 4 x 4 block, by pairs of words and then of double words.
[[gnu::always_inline]] static inline void transpose_four(uint32x4_t& a, uint32x4_t& b, uint32x4_t& c, uint32x4_t& d) {
  const uint32x4x2_t ab = vtrnq_u32(a, b), cd = vtrnq_u32(c, d);
  a = vcombine_u32(vget_low_u32(ab.val[0]), vget_low_u32(cd.val[0]));
  b = vcombine_u32(vget_low_u32(ab.val[1]), vget_low_u32(cd.val[1]));
  c = vcombine_u32(vget_high_u32(ab.val[0]), vget_high_u32(cd.val[0]));
  d = vcombine_u32(vget_high_u32(ab.val[1]), vget_high_u32(cd.val[1]));
}

/// Transposes an 8 x 8 block of 32-bit words; a row is a pair of vectors, low and high. Always inlined: this header is
/// compiled for several instruction sets.
template <class Words>
[[gnu::always_inline]] static inline void transpose_words(Words (&r)[8]) {
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    transpose_four(r[i].low, r[i + 1].low, r[i + 2].low, r[i + 3].low);
    transpose_four(r[i].high, r[i + 1].high, r[i + 2].high, r[i + 3].high);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t corner = r[i].high;
    r[i].high = r[i + 4].low;
    r[i + 4].low = corner;
  }
}

}  // namespace qtrain::ops
