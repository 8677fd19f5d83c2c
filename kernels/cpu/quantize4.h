#pragma once
#include <bit>

#include "kernels/cpu/expand4.h"
#include "kernels/cpu/loops.h"
#include "kernels/quantize.h"

/// Access to 4-bit blocks for CPU ops.
namespace qtrain::ops {

/// The scales of all blocks.
class Scales {
 public:
  explicit Scales(const Blocks4& w) : size_(w.nested_blocksize) {
    if (!w.nested()) {
      absmax_ = w.absmax.as<float>();
      return;
    }
    codes_ = w.absmax.as<std::uint8_t>();
    absmax_ = w.nested_absmax.as<float>();
    map_ = w.nested_map.as<float>();
    offset_ = *w.offset.as<float>();
  }
  float operator[](std::int64_t block) const;
  /// Pointer to all scales, or null if they are nested.
  const float* plain() const { return codes_ ? nullptr : absmax_; }
  /// Prefetches scales of blocks that are read later.
  void fetch(std::int64_t first, std::int64_t count) const {
    const auto* from = codes_ ? codes_ + first : reinterpret_cast<const std::uint8_t*>(absmax_ + first);
    const std::int64_t bytes = codes_ ? count : count * 4;
    for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
  }
  /// Reads the scales of consecutive blocks, which must be nested.
  void read(std::int64_t first, std::int64_t count, float* to) const;

 private:
  const std::uint8_t* codes_ = nullptr;
  const float *absmax_ = nullptr, *map_ = nullptr;
  float offset_ = 0;
  int size_;
};

/// The sixteen possible values in a block.
template <class T>
class BlockValues {
 public:
  BlockValues(const float* map, float scale) {
    const simd::Vec<float> s = simd::broadcast(scale);
    simd::store<float>(values_, simd::load<float>(map) * s);
    simd::store<float>(values_ + 8, simd::load<float>(map + 8) * s);
  }
  T operator[](int code) const { return values_[code]; }

  /// Expands 16 bytes of codes to y[0, 32).
  template <Stores S>
  void expand32(const std::uint8_t* codes, T* y) const {
    constexpr bool kStreamed = S == Stores::streamed;
    if constexpr (sizeof(T) == 4)
      simd::expand_words<kStreamed>(values_, codes, y);
    else
      simd::expand_halves<kStreamed>(values_, codes, y);
  }

 private:
  alignas(32) T values_[16];
};

/// The code of element i.
inline int code_at(const std::uint8_t* codes, std::int64_t i) {
  return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
}

/// Expands any range of elements of w to T.
template <class T>
class Expansion {
 public:
  explicit Expansion(const Blocks4& w)
      : w_(w),
        scales_(w),
        codes_(w.codes.as<std::uint8_t>()),
        map_(w.map.as<float>()),
        wide_(whole_blocks4(dtype_of<T>)) {}

  /// y[0, end - begin) = elements [begin, end).
  template <Stores S = Stores::cached>
  void range(std::int64_t begin, std::int64_t end, T* y) const {
    if (!wide_) return narrow<S>(begin, end, y);
    const std::int64_t size = w_.blocksize, first = std::min(end, ceil_div(begin, size) * size);
    const std::int64_t blocks = (end - first) / size, last = first + blocks * size;
    narrow<S>(begin, first, y);
    whole<S>(first / size, blocks, y + (first - begin));
    narrow<S>(last, end, y + (last - begin));
  }

 private:
  template <Stores S>
  void narrow(std::int64_t begin, std::int64_t end, T* y) const {
    while (begin < end) {
      const std::int64_t block = begin / w_.blocksize, stop = std::min<std::int64_t>(end, (block + 1) * w_.blocksize);
      const BlockValues<T> values(map_, scales_[block]);
      if (begin % 2 == 1) *y++ = values[code_at(codes_, begin++)];
      for (; begin + 32 <= stop; begin += 32, y += 32) values.template expand32<S>(codes_ + begin / 2, y);
      for (; begin < stop; ++begin) *y++ = values[code_at(codes_, begin)];
    }
  }
  template <Stores S>
  void whole(std::int64_t block, std::int64_t blocks, T* y) const {
    constexpr std::int64_t kMax = 64;  // scales read at a time
    float scales[kMax];
    for (const std::int64_t end = block + blocks; block < end; block += kMax) {
      const std::int64_t count = std::min(kMax, end - block);
      for (std::int64_t i = 0; i < count; ++i) scales[i] = scales_[block + i];
      wide_[static_cast<int>(S)]({codes_ + block * w_.blocksize / 2, scales, map_, count, w_.blocksize, y});
      y += count * w_.blocksize;
    }
  }

  const Blocks4& w_;
  Scales scales_;
  const std::uint8_t* codes_;
  const float* map_;
  const ExpandBlocks4* wide_;  ///< indexed by Stores; may be null
};

}  // namespace qtrain::ops
