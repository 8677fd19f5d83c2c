#include "kernels/cpu/gemm_pack.h"

#include <algorithm>

#include "kernels/cpu/simd.h"

namespace qtrain::ops {
namespace {

using simd::FullLanes;
using simd::load;

/// Both storage types of the panel are written as 32-bit words: an f32, or two bf16 with the lower k in the low half.
using Words = __m256i;

/// Rows 0..7 of an 8 x 8 block of words become its columns.
void transpose(Words (&r)[8]) {
  Words t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      u[i + 2 * j] = _mm256_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      u[i + 2 * j + 1] = _mm256_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

/// Eight words of one lane from k on, `valid` values of k of which exist.
template <class T, int Group, class Valid>
Words lane_words(const T* p, Valid valid) {
  if constexpr (Group == 1) {
    return _mm256_castps_si256(load<float>(p, valid));
  } else if constexpr (std::is_same_v<T, Bf16>) {
    if constexpr (std::is_same_v<Valid, int>) {
      Bf16 part[16] = {};
      std::copy_n(p, valid, part);
      return _mm256_loadu_si256(reinterpret_cast<const Words*>(part));
    }
    return _mm256_loadu_si256(reinterpret_cast<const Words*>(p));
  } else {
    const auto half = [&](int skip) {
      if constexpr (std::is_same_v<Valid, int>) {
        const int n = std::clamp(valid - skip, 0, 8);
        return simd::narrow(n == 8 ? load<float>(p + skip) : load<float>(p + (n ? skip : 0), n));
      } else {
        return simd::narrow(load<float>(p + skip));
      }
    };
    return _mm256_set_m128i(half(8), half(0));
  }
}

template <class T, int Group>
struct Packer {
  const Operand& from;
  const PanelRange& range;
  int width;
  const T* data = reinterpret_cast<const T*>(from.data);

  static constexpr int kBlock = 8 * Group;  // values of k in a block of words

  const T* at(std::int64_t lane, std::int64_t k) const {
    return data + (range.lane + lane) * from.lane_stride + (range.k + k) * from.k_stride;
  }

  /// Eight lanes from `lane`, for all k, from memory where k runs fastest. Lanes are written in rising order, so that
  /// what a store writes beyond the panel's width is overwritten by the next one.
  void eight_lanes(std::uint32_t* to, std::int64_t lane) const {
    const std::int64_t count = std::min<std::int64_t>(8, range.count - lane);
    for (std::int64_t k = 0; k < range.depth; k += kBlock) {
      const std::int64_t left = range.depth - k;
      Words block[8];
      for (int i = 0; i < 8; ++i) {
        if (i >= count)
          block[i] = _mm256_setzero_si256();
        else if (left >= kBlock)
          block[i] = lane_words<T, Group>(at(lane + i, k), FullLanes<float>{});
        else
          block[i] = lane_words<T, Group>(at(lane + i, k), static_cast<int>(left));
      }
      transpose(block);
      std::uint32_t* out = to + k / Group * width + lane;
      const std::int64_t groups = std::min<std::int64_t>(8, (left + Group - 1) / Group);
      for (std::int64_t g = 0; g < groups; ++g)
        _mm256_storeu_si256(reinterpret_cast<Words*>(out + g * width), block[g]);
    }
  }

  /// One group of k for all lanes, from memory where lanes run fastest.
  void lanes_of(std::uint32_t* to, std::int64_t k) const {
    std::int64_t lane = 0;
    const T* first = at(0, k);
    const T* second = Group == 2 && k + 1 < range.depth ? at(0, k + 1) : nullptr;
    for (; lane < range.count; lane += 8) {
      const auto put = [&](auto valid) {
        const simd::Vec<float> x = load<float>(first + lane, valid);
        if constexpr (Group == 1)
          return _mm256_castps_si256(x);
        else {
          const auto low = _mm256_cvtepu16_epi32(simd::narrow(x));
          if (!second) return low;
          const auto high = _mm256_cvtepu16_epi32(simd::narrow(load<float>(second + lane, valid)));
          return _mm256_or_si256(low, _mm256_slli_epi32(high, 16));
        }
      };
      const std::int64_t left = range.count - lane;
      const Words words = left >= 8 ? put(FullLanes<float>{}) : put(static_cast<int>(left));
      if (lane + 8 <= width)
        _mm256_storeu_si256(reinterpret_cast<Words*>(to + lane), words);
      else
        std::memcpy(to + lane, &words, static_cast<std::size_t>(width - lane) * 4);
    }
    for (; lane < width; ++lane) to[lane] = 0;
  }

  void run(std::uint32_t* to) const {
    if (from.k_stride == 1) {
      for (std::int64_t lane = 0; lane < width; lane += 8) eight_lanes(to, lane);
    } else {
      for (std::int64_t k = 0; k < range.depth; k += Group) lanes_of(to + k / Group * width, k);
    }
  }
};

template <class T>
void pack_from(void* to, const Operand& from, const PanelRange& range, const PanelForm& form) {
  auto* words = static_cast<std::uint32_t*>(to);
  if (form.k_group == 1) return Packer<T, 1>{from, range, form.width}.run(words);
  Packer<T, 2>{from, range, form.width}.run(words);
}

}  // namespace

Operand rows_of(const Gemm& g) {
  const bool turned = g.transpose_a == Transpose::yes;
  const std::int64_t height = g.a.shape[0], width = g.a.shape[1];
  if (turned) return {g.a.data, g.a.dtype, width, height, 1, width};
  return {g.a.data, g.a.dtype, height, width, width, 1};
}

Operand columns_of(const Gemm& g) {
  const bool turned = g.transpose_b == Transpose::yes;
  const std::int64_t height = g.b.shape[0], width = g.b.shape[1];
  if (turned) return {g.b.data, g.b.dtype, height, width, width, 1};
  return {g.b.data, g.b.dtype, width, height, 1, width};
}

void pack_panel(void* to, const Operand& from, const PanelRange& range, const PanelForm& form) {
  if (from.dtype == DType::bf16) return pack_from<Bf16>(to, from, range, form);
  pack_from<float>(to, from, range, form);
}

}  // namespace qtrain::ops
