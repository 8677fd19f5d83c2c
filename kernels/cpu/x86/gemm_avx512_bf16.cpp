#include <immintrin.h>

#include "kernels/cpu/expand8.h"
#include "kernels/cpu/gemm_tile.h"

namespace qtrain::ops {
namespace {

constexpr int kMaxRows = 8, kLanes = 16, kVectors = 3, kWidth = kLanes * kVectors;

template <int Rows, int Vectors>
void multiply(const TileCall& call) {
  // Local copies, because stores to the tile may alias `call`.
  const std::int64_t step = call.a_group, b_step = call.b_group, groups = call.groups, tile_row = call.tile_row;
  float* tile = call.tile;
  const auto* b = static_cast<const std::int32_t*>(call.b);  // bf16 pairs
  const std::int32_t* a[Rows];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
    a[i] = static_cast<const std::int32_t*>(call.a) + (i < call.rows ? i : call.rows - 1) * call.a_row;
  __m512 sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v)
      sum[i][v] = call.add ? _mm512_loadu_ps(tile + i * tile_row + v * kLanes) : _mm512_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < groups; ++k, at += step, b += b_step) {
    __m512bh row[Vectors];
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) row[v] = (__m512bh)_mm512_loadu_si512(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const auto x = (__m512bh)_mm512_set1_epi32(a[i][at]);
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], x, row[v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) _mm512_storeu_ps(tile + i * tile_row + v * kLanes, sum[i][v]);
}

constexpr int kStreamed = 32, kLine = 64;

__m128i part(const std::byte* b) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
}
/// Loads 16 bytes from each of four columns that are `step` bytes apart.
[[gnu::always_inline]] inline __m512i four_columns(const std::byte* b, std::int64_t step) {
  const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(part(b)), part(b + step), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(two, part(b + 2 * step), 2), part(b + 3 * step), 3);
}
/// Transposes the 4 x 4 block of words in each 128-bit lane of the vectors.
[[gnu::always_inline]] inline void turn_words(__m512i (&v)[4]) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
}

/// The sums of sixteen columns for each row.
template <int Rows>
class Sums {
 public:
  [[gnu::always_inline]] Sums(const StreamCall& call, int column)
      : tile_(call.tile + column), tile_row_(call.tile_row) {
    for (int i = 0; i < Rows; ++i) sum_[i] = _mm512_loadu_ps(tile_ + i * tile_row_);
  }
  /// Adds one pair of k of all columns; `a` points to that pair of all rows.
  [[gnu::always_inline]] void add(const std::int32_t* a, __m512i pairs) {
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i)
      sum_[i] = _mm512_dpbf16_ps(sum_[i], (__m512bh)_mm512_set1_epi32(a[i]), (__m512bh)pairs);
  }
  [[gnu::always_inline]] void write() const {
    for (int i = 0; i < Rows; ++i) _mm512_storeu_ps(tile_ + i * tile_row_, sum_[i]);
  }

 private:
  float* tile_;
  std::int64_t tile_row_;
  __m512 sum_[Rows];
};

/// Prefetches lines of `Count` columns into the level-2 cache, or, for short columns, into level 1.
template <int Count, _mm_hint Into = _MM_HINT_T1>
[[gnu::always_inline]] inline void fetch(const std::byte* b, std::int64_t b_column) {
#pragma GCC unroll 16
  for (int c = 0; c < Count; ++c) _mm_prefetch(b + c * b_column, Into);
}

/// Transposes a 16 x 16 block of words.
[[gnu::always_inline]] inline void turn_lines(__m512i (&v)[4][4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) turn_words(v[i]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(v[0][i], v[1][i], 0x44), b = _mm512_shuffle_i32x4(v[0][i], v[1][i], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(v[2][i], v[3][i], 0x44), d = _mm512_shuffle_i32x4(v[2][i], v[3][i], 0xee);
    v[0][i] = _mm512_shuffle_i32x4(a, c, 0x88), v[1][i] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[2][i] = _mm512_shuffle_i32x4(b, d, 0x88), v[3][i] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

/// Reads whole cache lines: columns a power of two apart evict each other from the level-1 cache.
template <int Rows>
void stream(const StreamCall& call) {
  const std::int64_t b_column = call.b_column, depth = call.depth;
  const std::int64_t ahead = call.ahead;
  const auto* a = static_cast<const std::int32_t*>(call.a);
  const std::byte* b = call.b;
  Sums<Rows> sums[2] = {{call, 0}, {call, 16}};
  for (std::int64_t k = 0; k < depth; k += kLine / 2, b += kLine, a += kLine / 4 * Rows)
#pragma GCC unroll 2
    for (int side = 0; side < 2; ++side) {
      const std::byte* from = b + 16 * side * b_column;
      fetch<16>(from + ahead, b_column);
      __m512i pairs[4][4];
#pragma GCC unroll 16
      for (int c = 0; c < 16; ++c) pairs[c / 4][c % 4] = _mm512_loadu_si512(from + c * b_column);
      turn_lines(pairs);
#pragma GCC unroll 16
      for (int g = 0; g < 16; ++g) sums[side].add(a + g * Rows, pairs[g / 4][g % 4]);
    }
  for (const Sums<Rows>& side : sums) side.write();
}

/// The values of the codes of four columns, 16 per column.
struct Values4 {
  __m512i low, high;

  /// For columns whose scales are `step` apart.
  Values4() = default;
  [[gnu::always_inline]] Values4(__m512 map, const float* scales, std::int64_t step) {
    const auto of = [&](int i) { return _mm512_mul_ps(map, _mm512_set1_ps(scales[i * step])); };
    low = (__m512i)_mm512_cvtne2ps_pbh(of(1), of(0));
    high = (__m512i)_mm512_cvtne2ps_pbh(of(3), of(2));
  }
};

/// Byte shuffle that turns four bytes of a column into eight indices: each byte becomes two words.
__m512i bytes_of(int part) {
  return _mm512_broadcast_i32x4(
      _mm_add_epi8(_mm_setr_epi8(0, -128, 0, -128, 1, -128, 1, -128, 2, -128, 2, -128, 3, -128, 3, -128),
                   _mm_set1_epi16(static_cast<short>(4 * part))));
}

template <int Rows>
void stream4(const StreamCall4& call) {
  const std::int64_t b_column = call.in.b_column, depth = call.in.depth;
  const std::int64_t ahead = call.in.ahead, blocksize = call.blocksize, blocks = call.blocks_per_column;
  const auto* a = static_cast<const std::int32_t*>(call.in.a);
  const std::byte* b = call.in.b;
  const float* scales = call.scales;
  const __m512 map = _mm512_loadu_ps(call.map);
  const __m512i shifts = _mm512_set1_epi32(4), nibble = _mm512_set1_epi16(15);
  // The words of column i are looked up in values starting at 16 i.
  const __m512i column = _mm512_slli_epi16(
      _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi16(1), _mm_setzero_si128())),
                         _mm256_set_m128i(_mm_set1_epi16(3), _mm_set1_epi16(2)), 1),
      4);
  const __m512i bytes[4] = {bytes_of(0), bytes_of(1), bytes_of(2), bytes_of(3)};
  Sums<Rows> sums[2] = {{call.in, 0}, {call.in, 16}};
  for (std::int64_t k = 0; k < depth; ++scales) {
    Values4 values[2][4];
    for (int side = 0; side < 2; ++side)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) values[side][j] = {map, scales + (16 * side + j) * blocks, 4 * blocks};
    for (const std::int64_t end = k + blocksize; k < end; k += 32, b += 16, a += 16 * Rows)
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {
        const std::byte* from = b + 16 * side * b_column;
        fetch<4, _MM_HINT_T0>(from + ahead + (k & 96) / 8 * b_column, b_column);  // a cache line holds four such parts
        __m512i codes[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) codes[j] = four_columns(from + j * b_column, 4 * b_column);
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
          __m512i pairs[4];
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) {
            const __m512i shifted = _mm512_srlv_epi16(_mm512_shuffle_epi8(codes[j], bytes[p]), shifts);
            const __m512i places = _mm512_ternarylogic_epi32(shifted, nibble, column, 0xea);  // (a and b) or c
            pairs[j] = _mm512_permutex2var_epi16(values[side][j].low, places, values[side][j].high);
          }
          turn_words(pairs);
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) sums[side].add(a + (4 * p + j) * Rows, pairs[j]);
        }
      }
  }
  for (const Sums<Rows>& side : sums) side.write();
}

/// Sixteen columns of 8-bit codes. 128-bit lane i of a vector holds columns 2 i, 2 i + 1, 2 i + 8 and 2 i + 9, so that
/// rounding two halves yields pairs in column order.
class Columns8 {
 public:
  [[gnu::always_inline]] explicit Columns8(const float* scales) {
    const __m512 all = _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_set1_ps(0x1p-24F));
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    scale_[0] = _mm512_permutexvar_ps(twice, all);
    scale_[1] = _mm512_permutexvar_ps(_mm512_add_epi32(twice, _mm512_set1_epi32(8)), all);
  }
  /// Expands four values of k of each column (a word holds a column's codes) to two pairs.
  [[gnu::always_inline]] void expand(__m512i codes, __m512i (&pairs)[2]) const {
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) pairs[p] = (__m512i)_mm512_cvtne2ps_pbh(value<1>(codes, p), value<0>(codes, p));
  }

 private:
  /// A code in the highest byte of a word is multiplied by 2^24; the scales compensate.
  template <int Half>
  [[gnu::always_inline]] __m512 value(__m512i codes, int pair) const {
    const auto top = [&](int column, int k) {
      return static_cast<int>(static_cast<unsigned>(8 * Half + 4 * column + 2 * pair + k) << 24 | 0x808080U);
    };
    const __m512i places = _mm512_broadcast_i32x4(_mm_setr_epi32(top(0, 0), top(0, 1), top(1, 0), top(1, 1)));
    const __m512 whole = _mm512_cvtepi32_ps(_mm512_shuffle_epi8(codes, places));
    return _mm512_mul_ps(_mm512_mul_ps(whole, scale_[Half]), _mm512_set1_ps(kUnit8));
  }
  __m512 scale_[2];
};

template <int Rows>
void stream8(const StreamCall8& call) {
  const std::int64_t b_column = call.in.b_column, depth = call.in.depth;
  const std::int64_t ahead = call.in.ahead;
  const auto* a = static_cast<const std::int32_t*>(call.in.a);
  const std::byte* b = call.in.b;
  const Columns8 columns[2] = {Columns8(call.scales), Columns8(call.scales + 16)};
  Sums<Rows> sums[2] = {{call.in, 0}, {call.in, 16}};
  for (std::int64_t k = 0; k < depth; k += 32, b += 32, a += 16 * Rows)
#pragma GCC unroll 2
    for (int side = 0; side < 2; ++side) {
      const std::byte* from = b + 16 * side * b_column;
      const std::int64_t fetched = k / 32 % 2 * 8;  // a cache line holds two such parts
      fetch<8>(from + ahead + fetched * b_column, b_column);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m512i codes[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j)
          codes[j] = four_columns(from + (j % 2 + j / 2 * 8) * b_column + 16 * half, 2 * b_column);
        turn_words(codes);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          __m512i pairs[2];
          columns[side].expand(codes[j], pairs);
          sums[side].add(a + (8 * half + 2 * j) * Rows, pairs[0]);
          sums[side].add(a + (8 * half + 2 * j + 1) * Rows, pairs[1]);
        }
      }
    }
  for (const Sums<Rows>& side : sums) side.write();
}

}  // namespace

const TileKernel kTileAvx512Bf16{.mr = kMaxRows,
                                 .nr = kWidth,
                                 .lanes = kLanes,
                                 .k_group = 2,
                                 .k_block = 1536,
                                 .strip = 96,
                                 .heights = {1, 2, 4, kMaxRows},
                                 .run = {{multiply<1, 1>, multiply<1, 2>, multiply<1, 3>},
                                         {multiply<2, 1>, multiply<2, 2>, multiply<2, 3>},
                                         {multiply<4, 1>, multiply<4, 2>, multiply<4, 3>},
                                         {multiply<kMaxRows, 1>, multiply<kMaxRows, 2>, multiply<kMaxRows, 3>}},
                                 .streamed = kStreamed,
                                 .stream_bf16 = {stream<1>, stream<2>},
                                 .stream4 = {stream4<1>, stream4<2>},
                                 .stream8 = {stream8<1>, stream8<2>}};

}  // namespace qtrain::ops
