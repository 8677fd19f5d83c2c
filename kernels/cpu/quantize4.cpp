#include "kernels/cpu/quantize4.h"

// Compiled without contraction (FMA): products are rounded before they are added.
namespace qtrain::ops {

float Scales::operator[](std::int64_t block) const {
  return codes_ ? map_[codes_[block]] * absmax_[block / size_] + offset_ : absmax_[block];
}

void Scales::read(std::int64_t first, std::int64_t count, float* to) const {
  const float offset = offset_;
  for (const std::int64_t end = first + count; first < end;) {
    const float absmax = absmax_[first / size_];
    const std::int64_t stop = std::min(end, (first / size_ + 1) * size_);
    for (; first < stop; ++first) *to++ = map_[codes_[first]] * absmax + offset;
  }
}

namespace {

using simd::Vec;
using simd::Words;

template <class F>
void dispatch_storage(DType d, F&& f) {
  switch (d) {
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<Bf16>();
    case DType::f16: return f.template operator()<F16>();
    default: fail(ErrorKind::internal, {.cause = "4-bit blocks are of f32, bf16 or f16"});
  }
}

/// Results too large for the caches are stored past them: a cached store would read the line first.
constexpr std::size_t kStreamBytes = std::size_t{8} << 20;

template <class T>
void dequantize_rows(Ctx& ctx, const Dequantize4& a) {
  const Expansion<T> elements(a.w);
  T* y = a.y.as<T>();
  const std::int64_t K = a.w.shape[1];
  for_rows(ctx, a.w.shape[0], K, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) elements.range(row * K, (row + 1) * K, y + row * a.y_stride);
  });
}

template <class T>
void dequantize_as(Ctx& ctx, const Dequantize4& a) {
  if (a.y_stride != 0) return dequantize_rows<T>(ctx, a);
  const Expansion<T> elements(a.w);
  T* y = a.y.as<T>();
  const bool streams = a.y.bytes() >= kStreamBytes && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  const std::int64_t n = a.y.numel(), size = a.w.blocksize;
  for_ranges(ctx, blocks_of(n, size), kBlockSize / size, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * size, end = std::min(n, last * size);
    if (!streams) return elements.range(begin, end, y + begin);
    elements.template range<Stores::streamed>(begin, end, y + begin);
    simd::finish_streaming();
  });
}

/// The bits of the largest magnitude; a NaN has larger bits than any other value.
template <class T>
std::int32_t largest_bits(const T* x, std::int64_t n) {
  Words largest{};
  simd::each<float>(n, [&](std::int64_t i, auto lanes) {
    largest = simd::max_signed(largest, simd::bits_of(simd::load<float>(x + i, lanes)) & simd::all_words(0x7fffffff));
  });
  alignas(32) std::int32_t lanes[8];
  simd::store_words(lanes, largest);
  return *std::max_element(lanes, lanes + 8);
}

/// Finds codes by binary search: eight values at a time with four comparisons.
class Coder {
 public:
  explicit Coder(FourBit type) : order_(order_of(type)) {
    const auto& b = order_.bounds;
    for (std::size_t i = 0; i < 8; ++i) {
      pairs_[i] = b[2 * i];
      quarters_[i] = b[4 * (i % 4) + 1];
    }
  }

  std::uint8_t one(float v) const {
    v = std::clamp(v, -1.0F, 1.0F);
    std::size_t place = 0;
    for (const float bound : order_.bounds) place += bound < v ? 1 : 0;
    return order_.order[place];
  }
  /// Writes eight bytes of codes for the sixteen values in a and b.
  void sixteen(Vec<float> a, Vec<float> b, std::uint8_t* codes) const {
    simd::store_codes(codes, order_.order.data(), places(a), places(b));
  }

 private:
  Words places(Vec<float> v) const {
    v = simd::min(simd::max(v, simd::broadcast(-1.F)), simd::broadcast(1.F));
    const auto above = [&](Vec<float> bound) { return simd::above(v, bound); };
    const auto bit = [](Words mask, std::uint32_t value) { return mask & simd::all_words(value); };
    const Words half = above(simd::broadcast(order_.bounds[7]));
    const Vec<float> second = simd::choose(half, simd::broadcast(order_.bounds[11]), simd::broadcast(order_.bounds[3]));
    Words place = bit(half, 8) | bit(above(second), 4);
    place = place | bit(above(simd::pick(quarters_, place >> 2)), 2);
    return place | bit(above(simd::pick(pairs_, place >> 1)), 1);
  }

  FourBitOrder order_;
  float pairs_[8], quarters_[8];
};

template <class T>
void code_full_block(const Coder& coder, const T* x, float inverse, std::int64_t n, std::uint8_t* codes) {
  const Vec<float> scale = simd::broadcast(inverse);
  for (std::int64_t i = 0; i < n; i += 16)
    coder.sixteen(simd::load<float>(x + i) * scale, simd::load<float>(x + i + 8) * scale, codes + i / 2);
}

/// Encodes the last, shorter block, which divides by its scale.
template <class T>
void code_last_block(const Coder& coder, const T* x, float scale, std::int64_t n, std::uint8_t* codes) {
  const std::uint8_t zero = coder.one(0);
  for (std::int64_t i = 0; i < n; i += 2) {
    const std::uint8_t odd = i + 1 < n ? coder.one(float(x[i + 1]) / scale) : zero;
    codes[i / 2] = static_cast<std::uint8_t>(coder.one(float(x[i]) / scale) << 4 | odd);
  }
}

template <class T>
void quantize_as(Ctx& ctx, const Quantize4& a) {
  const T* x = a.x.as<T>();
  auto* codes = a.codes.as<std::uint8_t>();
  auto* absmax = a.absmax.as<float>();
  const std::int64_t n = a.x.numel(), size = a.blocksize;
  const Coder coder(a.type);
  for_ranges(ctx, blocks_of(n, size), kBlockSize / size, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t begin = b * size, count = std::min(n - begin, size);
      absmax[b] = std::bit_cast<float>(largest_bits(x + begin, count));
      const float scale = absmax[b] < kLeastScale ? kLeastScale : absmax[b];
      if (count == size) {
        code_full_block(coder, x + begin, 1.0F / scale, size, codes + begin / 2);
      } else {
        absmax[b] = scale;
        code_last_block(coder, x + begin, scale, count, codes + begin / 2);
      }
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const Dequantize4& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() { dequantize_as<T>(ctx, a); });
}
void run_cpu(Ctx& ctx, const Quantize4& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() { quantize_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
