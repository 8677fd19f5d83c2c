#pragma once
#include <array>
#include <bit>
#include <cmath>

#include "kernels/dispatch.h"

namespace qtrain::ops {

/// How the next token is chosen. The order of the filters is transformers': repetition penalty, temperature, top-k,
/// top-p, min-p.
struct SampleRule {
  double temperature = 1;         ///< 0: the token with the largest logit, the first on a tie
  std::int64_t top_k = 0;         ///< 0: off
  double top_p = 1;               ///< 1: off
  double min_p = 0;               ///< 0: off
  double repetition_penalty = 1;  ///< 1: off
  std::uint64_t seed = 42;
};

/// tokens[i] = a draw from the filtered softmax of logits[i]; tokens i32 [n], logits f32 [n, V], which may be
/// overwritten. Row i is token number place[i][1] of sequence place[i][0] (i64 [n, 2]); the same seed and place give
/// the same token on every device. Only tokens below `candidates` are drawn. The penalty applies to the tokens
/// seen[ends[i - 1]] to seen[ends[i] - 1] (i32, distinct within a row; ends i32 [n], and ends[-1] is 0). Candidates are
/// ranked by logit, then by token id. Their weights are integers (see sample_weight), so that sums have the same bits
/// in any order; a filter keeps the first candidates of the ranking.
struct Sample {
  Tensor tokens, logits;
  ConstTensor place;
  ConstTensor seen = {}, ends = {};
  SampleRule rule = {};
  std::int64_t candidates = 0;  ///< 0: all

  std::int64_t width() const { return candidates > 0 ? candidates : logits.shape[1]; }
};
void run_cpu(Ctx&, const Sample&);
void run_cuda(Ctx&, const Sample&);

/// Bits of the weight of the largest logit: sums of kMaxLogits weights stay below 2^63.
inline constexpr int kSampleBits = 44;
inline constexpr std::int64_t kMaxLogits = std::int64_t{1} << 19;

/// round(2^44 e^x) for x <= 0, bitwise the same on every device: every rounding is explicit in the code. e^x is 2^n (1
/// + r + r^2/2! + ... + r^11/11!) with |r| <= ln(2)/2, whose error is below 2^-45.
template <class Real>
constexpr std::uint64_t sample_weight(Real x) {
  constexpr Real kLog2e = 1.4426950408889634, kWhole = 0x1.8p52;
  constexpr Real kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr Real kInverse[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                               1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};
  if (!(x > -32)) return 0;
  const Real n = fma(x, kLog2e, kWhole) - kWhole;
  const Real r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
  Real sum = kInverse[0];
  for (int i = 1; i < 12; ++i) sum = fma(sum, r, kInverse[i]);
  const auto exponent = static_cast<std::uint64_t>(1023 + kSampleBits + static_cast<int>(n));
  return static_cast<std::uint64_t>(fma(sum, std::bit_cast<Real>(exponent << 52), Real(0.5)));
}

/// The logit and token id of a candidate as one sort key: larger keys rank first. -0 equals 0; the rank of NaN is
/// unspecified.
constexpr std::uint64_t sample_key(float logit, std::uint32_t number) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  return std::uint64_t{bits >> 31 ? ~bits : bits | 0x80000000u} << 32 | ~number;
}
constexpr float logit_of_key(std::uint64_t key) {
  const auto bits = static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}
constexpr std::int32_t number_of_key(std::uint64_t key) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
}

/// A logit after the repetition penalty.
constexpr float penalized(float logit, double penalty) {
  return static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
}

/// ceil(share * total): the smallest integer weight that is at least that share of the total.
template <class Real>
constexpr std::uint64_t share_of(Real share, std::uint64_t total) {
  return static_cast<std::uint64_t>(ceil(share * static_cast<Real>(total)));
}

/// The weights of a row's candidates; 0 for those that filters removed.
template <class Real>
struct SampleWeights {
  Real highest, temperature;   ///< the largest logit
  std::uint64_t last_key = 0;  ///< that of the last candidate kept
  std::uint64_t least = 0;     ///< minimum weight

  constexpr std::uint64_t operator()(std::uint64_t key) const {
    if (key < last_key) return 0;
    const std::uint64_t weight = sample_weight((Real(logit_of_key(key)) - highest) / temperature);
    return weight < least ? 0 : weight;
  }
};

/// Whether weights relative to the highest logit are meaningful; if it is infinite or NaN, that token is chosen.
constexpr bool can_weigh(float highest) {
  return highest - highest == 0;
}

/// The target of inverse-transform sampling: with weights that add up to `total` > 0, the first candidate whose
/// cumulative weight exceeds it is chosen.
constexpr std::uint64_t sample_point(const std::array<std::uint32_t, 4>& words, std::uint64_t total) {
  const double u = static_cast<double>(std::uint64_t{words[0]} << 21 ^ words[1] >> 11) * 0x1p-53;
  const auto point = static_cast<std::uint64_t>(u * static_cast<double>(total));
  return point < total ? point : total - 1;
}

inline void sample(Ctx& ctx, const Sample& a) {
  check(a.logits.shape.rank == 2 && a.tokens.numel() == a.logits.shape[0] && a.place.numel() == 2 * a.tokens.numel(),
        "sample: one token and one place per row of logits");
  check(a.logits.shape[1] > 0 && a.logits.shape[1] <= kMaxLogits, "sample: 1 to 2^19 logits");
  check(a.candidates >= 0 && a.candidates <= a.logits.shape[1], "sample: more candidates than logits");
  check(a.rule.repetition_penalty == 1 || a.ends.numel() == a.tokens.numel(), "sample: one end of `seen` per row");
  if (a.tokens.numel() > 0) dispatch(ctx, a);
}

}  // namespace qtrain::ops
