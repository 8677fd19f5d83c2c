#include "kernels/cpu/gemm_pack.h"

#include <algorithm>

#include "kernels/cpu/simd.h"

namespace qtrain::ops {
namespace {

using simd::all_words;
using simd::FullLanes;
using simd::load;
using simd::load_words;
using simd::transpose_words;
/// Panels of both types are written as 32-bit words: an f32, or two bf16 with the lower k in the low half.
using simd::Words;

/// Eight words of one lane starting at k, of which `valid` values of k exist.
template <class T, int Group, class Valid>
Words lane_words(const T* p, Valid valid) {
  if constexpr (Group == 1) {
    return simd::bits_of(load<float>(p, valid));
  } else if constexpr (std::is_same_v<T, Bf16>) {
    if constexpr (std::is_same_v<Valid, int>) {
      Bf16 part[16] = {};
      std::copy_n(p, valid, part);
      return load_words(part);
    }
    return load_words(p);
  } else {
    const auto half = [&](int skip) {
      if constexpr (std::is_same_v<Valid, int>) {
        const int n = std::clamp(valid - skip, 0, 8);
        return simd::to_bf16(n == 8 ? load<float>(p + skip) : load<float>(p + (n ? skip : 0), n));
      } else {
        return simd::to_bf16(load<float>(p + skip));
      }
    };
    return simd::join(half(0), half(8));
  }
}

/// Vector stores may alias anything, so the loops below use only local copies.
void put(std::uint32_t* to, Words words) {
  simd::store_words(to, words);
}

template <class T, int Group>
class Packer {
 public:
  Packer(const Operand& from, const PanelRange& range, int width)
      : first_(reinterpret_cast<const T*>(from.data) + range.lane * from.lane_stride + range.k * from.k_stride),
        lane_stride_(from.lane_stride),
        k_stride_(from.k_stride),
        lanes_(range.count),
        depth_(range.depth),
        width_(width) {}

  void run(std::uint32_t* to) const {
    if (k_stride_ == 1) {
      for (std::int64_t k = 0; k < depth_; k += kChunk, to += kChunk / Group * width_)
        for (std::int64_t lane = 0; lane < width_; lane += 8)
          eight_lanes(to + lane, {lane, k, std::min(kChunk, depth_ - k)});
    } else {
      for (std::int64_t k = 0; k < depth_; k += Group, to += width_) one_group(to, k);
    }
  }

 private:
  static constexpr int kBlock = 8 * Group;  // values of k in a block of words
  /// Values of k packed at a time for all lanes, so that lines are completed while they are in the level-1 cache.
  static constexpr std::int64_t kChunk = 64;
  static constexpr bool kWidens = Group == 1 && std::is_same_v<T, Bf16>;

  /// Eight lanes starting at `lane`, for a range of k.
  struct Part {
    std::int64_t lane, k, depth;
  };
  /// For memory with contiguous k. Groups are written in ascending order, so that what a store writes past the panel's
  /// width is overwritten by the next one.
  void eight_lanes(std::uint32_t* to, const Part& part) const {
    const std::int64_t stride = lane_stride_, depth = part.depth, width = width_;
    const int count = static_cast<int>(std::clamp<std::int64_t>(lanes_ - part.lane, 0, 8));
    const T* from = first_ + part.lane * stride + part.k;
    std::int64_t k = 0;
    Words block[8];
    if (count == 8) {
      if constexpr (kWidens) k = eight_lanes_in_pairs(to, from, depth), to += k * width;
      for (; k + kBlock <= depth; k += kBlock, to += 8 * width) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) block[i] = lane_words<T, Group>(from + i * stride + k, FullLanes<float>{});
        transpose_words(block);
#pragma GCC unroll 8
        for (int g = 0; g < 8; ++g) put(to + g * width, block[g]);
      }
    }
    for (; k < depth; k += kBlock, to += 8 * width) {
      const int left = static_cast<int>(std::min<std::int64_t>(kBlock, depth - k));
      for (int i = 0; i < 8; ++i) block[i] = i < count ? words_at(from + i * stride + k, left) : Words{};
      transpose_words(block);
      for (int g = 0; g < (left + Group - 1) / Group; ++g) put(to + g * width, block[g]);
    }
  }
  /// bf16 to f32: pairs of adjacent k are transposed as one word and split afterwards. Returns the number of k
  /// processed.
  std::int64_t eight_lanes_in_pairs(std::uint32_t* to, const T* from, std::int64_t depth) const {
    const std::int64_t stride = lane_stride_, width = width_;
    const Words upper = all_words(0xffff0000U);
    Words block[8];
    std::int64_t k = 0;
    for (; k + 16 <= depth; k += 16, to += 16 * width) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) block[i] = load_words(from + i * stride + k);
      transpose_words(block);
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        put(to + 2 * g * width, block[g] << 16);
        put(to + (2 * g + 1) * width, block[g] & upper);
      }
    }
    return k;
  }
  static Words words_at(const T* p, int left) {
    return left == kBlock ? lane_words<T, Group>(p, FullLanes<float>{}) : lane_words<T, Group>(p, left);
  }

  /// One group of k for all lanes, for memory with contiguous lanes.
  void one_group(std::uint32_t* to, std::int64_t k) const {
    const T* low = first_ + k * k_stride_;
    const T* high = Group == 2 && k + 1 < depth_ ? low + k_stride_ : nullptr;
    const std::int64_t lanes = lanes_;
    const int width = width_;
    std::int64_t lane = 0;
    for (; lane + 8 <= lanes; lane += 8)
      put(to + lane, group_words(low + lane, high ? high + lane : nullptr, FullLanes<float>{}));
    if (lane < lanes) {
      const Words words = group_words(low + lane, high ? high + lane : nullptr, static_cast<int>(lanes - lane));
      const std::int64_t room = std::min<std::int64_t>(8, width - lane);
      simd::store_first(to + lane, words, static_cast<int>(room));
      lane += room;
    }
    for (; lane < width; ++lane) to[lane] = 0;
  }
  template <class Valid>
  static Words group_words(const T* low, const T* high, Valid valid) {
    if constexpr (Group == 1) return simd::bits_of(load<float>(low, valid));
    const Words even = simd::widen(simd::to_bf16(load<float>(low, valid)));
    if (!high) return even;
    const Words odd = simd::widen(simd::to_bf16(load<float>(high, valid)));
    return even | odd << 16;
  }

  const T* first_;
  std::int64_t lane_stride_, k_stride_, lanes_, depth_;
  int width_;
};

template <class T>
void pack_from(void* to, const Operand& from, const PanelRange& range, const PanelForm& form) {
  auto* words = static_cast<std::uint32_t*>(to);
  if (form.k_group == 1) return Packer<T, 1>(from, range, form.width).run(words);
  Packer<T, 2>(from, range, form.width).run(words);
}

}  // namespace

Operand rows_of(const Factors& f) {
  const std::int64_t height = f.a.shape[0], width = f.a.shape[1], step = row_step(f.a, f.a_stride);
  if (f.transpose_a == Transpose::yes) return {f.a.data, f.a.dtype, width, height, 1, step};
  return {f.a.data, f.a.dtype, height, width, step, 1};
}

Operand columns_of(const Factors& f) {
  const std::int64_t height = f.b.shape[0], width = f.b.shape[1], step = row_step(f.b, f.b_stride);
  if (f.transpose_b == Transpose::yes) return {f.b.data, f.b.dtype, height, width, step, 1};
  return {f.b.data, f.b.dtype, width, height, 1, step};
}

void pack_panel(void* to, const Operand& from, const PanelRange& range, const PanelForm& form) {
  if (from.dtype == DType::bf16) return pack_from<Bf16>(to, from, range, form);
  pack_from<float>(to, from, range, form);
}

}  // namespace qtrain::ops
