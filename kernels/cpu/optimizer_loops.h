#pragma once
#include <array>
#include <utility>

#include "kernels/code_table.h"
#include "kernels/cpu/loops.h"

/// Loops for optimizers. A step is a function object
///   Vec<A> operator()(Vec<A> param, Vec<A> grad, std::array<Vec<A>, S>& state) const
/// that returns the new parameter and updates the state.
namespace qtrain::ops {

template <class A, std::size_t S>
using Lanes = std::array<simd::Vec<A>, S>;

/// Parameter, gradient and state, n values each.
template <class A, std::size_t S>
struct UpdateArrays {
  A* param;
  const A* grad;
  std::array<A*, S> state;
};

/// Calls f(0), f(1), ... f(S - 1).
template <std::size_t S, class F>
void for_states(const F& f) {
  [&]<std::size_t... K>(std::index_sequence<K...>) {
    (f(K), ...);
  }
  (std::make_index_sequence<S>{});
}

template <class A, std::size_t S, class Step>
void update_elements(Ctx& ctx, std::int64_t n, const UpdateArrays<A, S>& a, const Step& step) {
  for_ranges(ctx, n, kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      const std::int64_t i = begin + j;
      Lanes<A, S> state;
      for_states<S>([&](std::size_t s) { state[s] = simd::load<A>(a.state[s] + i, lanes); });
      simd::store<A>(a.param + i, step(simd::load<A>(a.param + i, lanes), simd::load<A>(a.grad + i, lanes), state),
                     lanes);
      for_states<S>([&](std::size_t s) { simd::store<A>(a.state[s] + i, state[s], lanes); });
    });
  });
}

/// Decodes eight codes.
inline simd::Vec<float> decoded(const CodeTable& table, const std::uint8_t* codes) {
  return simd::look_up(table.values, simd::widen_bytes(codes));
}

/// The nearest codes of eight values in [-1, 1].
inline void encode(const CodeTable& table, simd::Vec<float> x, std::uint8_t* codes) {
  using simd::all_words, simd::Words;
  const Words bits = simd::bits_of(x), leading = (bits & all_words(0x7fffffff)) >> CodeTable::kLeadingBits;
  Words bucket = simd::max_signed(leading - all_words(CodeTable::kLowest), Words{});
  bucket = simd::min_signed(bucket, all_words(CodeTable::kBuckets - 1));
  bucket = bucket + (simd::shift_signed<31>(bits) & all_words(CodeTable::kBuckets));
  const Words first = simd::look_up(table.first, bucket);
  simd::store_bytes(codes, first - simd::above(x, simd::look_up(table.limits, first)));
}

/// A block of coded state. Codes are processed 256 at a time, through a copy if the block is shorter.
class CodedBlock {
 public:
  CodedBlock(const CodedState& s, std::int64_t block)
      : table_(*reinterpret_cast<const CodeTable*>(s.table.data)),
        codes_(s.codes.as<std::uint8_t>() + block * kCodeBlock),
        absmax_(s.absmax.as<float>() + block),
        count_(std::min(kCodeBlock, s.codes.numel() - block * kCodeBlock)) {}

  /// Decodes to values [kCodeBlock], with zeros past the end of the block.
  void open(float* values) const {
    std::uint8_t copied[kCodeBlock] = {};
    const std::uint8_t* codes = count_ == kCodeBlock ? codes_ : std::copy_n(codes_, count_, copied) - count_;
    for (std::int64_t i = 0; i < kCodeBlock; i += simd::kLanes<float>)
      simd::store<float>(values + i, decoded(table_, codes + i) * *absmax_);
    std::fill(values + count_, values + kCodeBlock, 0.0F);
  }
  void close(const float* values, float largest) const {
    *absmax_ = largest;
    const float inverse = largest > 0 ? 1 / largest : 0;
    std::uint8_t made[kCodeBlock];
    std::uint8_t* codes = count_ == kCodeBlock ? codes_ : made;
    for (std::int64_t i = 0; i < kCodeBlock; i += simd::kLanes<float>)
      encode(table_, simd::load<float>(values + i) * inverse, codes + i);
    if (codes == made) std::copy_n(made, count_, codes_);
  }

 private:
  const CodeTable& table_;
  std::uint8_t* codes_;
  float* absmax_;
  std::int64_t count_;
};

/// Parameter and gradient in f32, and their coded state.
template <std::size_t S>
struct CodedUpdate {
  Tensor param;
  ConstTensor grad;
  std::array<CodedState, S> state;
};

template <std::size_t S, class Step>
void update_block(const CodedUpdate<S>& a, std::int64_t block, const Step& step) {
  const std::int64_t begin = block * kCodeBlock, count = std::min(kCodeBlock, a.param.numel() - begin);
  float* param = a.param.template as<float>() + begin;
  const float* grad = a.grad.template as<float>() + begin;
  alignas(32) float values[S][kCodeBlock];
  for (std::size_t s = 0; s < S; ++s) CodedBlock(a.state[s], block).open(values[s]);
  Lanes<float, S> largest{};
  simd::each<float>(count, [&](std::int64_t i, auto lanes) {
    Lanes<float, S> state;
    for (std::size_t s = 0; s < S; ++s) state[s] = simd::load<float>(values[s] + i);
    simd::store<float>(param + i, step(simd::load<float>(param + i, lanes), simd::load<float>(grad + i, lanes), state),
                       lanes);
    for (std::size_t s = 0; s < S; ++s) {
      simd::store<float>(values[s] + i, state[s]);
      largest[s] = simd::max(simd::magnitude(state[s]), largest[s]);
    }
  });
  for (std::size_t s = 0; s < S; ++s) CodedBlock(a.state[s], block).close(values[s], simd::max_lane<float>(largest[s]));
}

template <std::size_t S, class Step>
void update_blocks(Ctx& ctx, const CodedUpdate<S>& a, const Step& step) {
  for_ranges(ctx, ceil_div(a.param.numel(), kCodeBlock), kBlockSize / kCodeBlock,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t block = begin; block < end; ++block) update_block(a, block, step);
             });
}

}  // namespace qtrain::ops
