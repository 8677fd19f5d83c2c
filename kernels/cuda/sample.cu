#include "kernels/sample.h"

#include "core/rng.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

/// One block per row. Candidates are not sorted: the end of a cumulative sum over the ranking is found digit by digit
/// of the keys, from integer sums, which are the same in any order.
namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 1024;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits, kDigitsOfLane = kDigits / kWarp;

using Weight = unsigned long long;  ///< as atomics take it

struct Args {
  std::int32_t* tokens;
  float* logits;
  const std::int64_t* place;
  const std::int32_t *seen, *ends;  ///< null: no repetition penalty
  SampleRule rule;
  int stride, width;  ///< logits per row, and number of candidates among them
};

struct Shared {
  Weight sums[kDigits];  ///< per digit
  BlockPartials<Weight> partials;
  Weight before;  ///< sum over the digits above the one found
  int digit;
};

struct Most {
  __device__ __forceinline__ Weight operator()(Weight a, Weight b) const { return a > b ? a : b; }
};

/// Calls f(key) for the candidates of the calling thread.
template <class F>
__device__ __forceinline__ void for_keys(const float* logits, int width, const F& f) {
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x))
    f(sample_key(logits[i], static_cast<std::uint32_t>(i)));
}

/// Finds the digit at which the cumulative sum, from the largest digit down, first exceeds `point`. Called by the first
/// warp.
__device__ void find_digit(Shared& s, Weight point) {
  const int lane = static_cast<int>(threadIdx.x), first = kDigits - 1 - lane * kDigitsOfLane;
  Weight own = 0;
  for (int i = 0; i < kDigitsOfLane; ++i) own += s.sums[first - i];
  Weight end = own;
  for (int step = 1; step < kWarp; step *= 2) {
    const Weight below = __shfl_up_sync(kAllLanes, end, static_cast<unsigned>(step));
    if (lane >= step) end += below;
  }
  Weight sum = end - own;
  if (sum > point || end <= point) return;
  int digit = first;
  while (sum + s.sums[digit] <= point) sum += s.sums[digit--];
  s.digit = digit;
  s.before = sum;
}

/// The key at which the cumulative sum of `measure` over the ranking first exceeds `point`, which is below the total.
template <class Measure>
__device__ std::uint64_t key_at(Shared& s, const Args& a, const float* logits, Weight point, const Measure& measure) {
  constexpr int kKeyBits = 64;
  std::uint64_t found = 0;
  for (int shift = kKeyBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += static_cast<int>(blockDim.x)) s.sums[i] = 0;
    __syncthreads();
    // Adjacent candidates often have the same digit, so sums are combined before they go to shared memory.
    int digit = 0;
    Weight sum = 0;
    for_keys(logits, a.width, [&](std::uint64_t key) {
      if (shift + kDigitBits < kKeyBits && (key ^ found) >> (shift + kDigitBits) != 0) return;
      const int own = static_cast<int>(key >> shift) & (kDigits - 1);
      if (own != digit && sum > 0) {
        atomicAdd(&s.sums[digit], sum);
        sum = 0;
      }
      digit = own;
      sum += measure(key);
    });
    if (sum > 0) atomicAdd(&s.sums[digit], sum);
    __syncthreads();
    if (threadIdx.x < kWarp) find_digit(s, point);
    __syncthreads();
    found |= static_cast<std::uint64_t>(s.digit) << shift;
    point -= s.before;
    __syncthreads();
  }
  return found;
}

template <class Measure>
__device__ Weight total(Shared& s, const Args& a, const float* logits, const Measure& measure) {
  Weight sum = 0;
  for_keys(logits, a.width, [&](std::uint64_t key) { sum += measure(key); });
  return block_sum(sum, s.partials);
}

__device__ void penalize(const Args& a, float* logits) {
  if (!a.ends) return;
  const int row = static_cast<int>(blockIdx.x), begin = row > 0 ? a.ends[row - 1] : 0;
  for (int i = begin + static_cast<int>(threadIdx.x); i < a.ends[row]; i += static_cast<int>(blockDim.x))
    logits[a.seen[i]] = penalized(logits[a.seen[i]], a.rule.repetition_penalty);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) sample_rows(Args a) {
  Shared& s = shared_memory<Shared>();
  const int row = static_cast<int>(blockIdx.x);
  float* logits = a.logits + std::int64_t{row} * a.stride;
  penalize(a, logits);
  Weight first = 0;
  for_keys(logits, a.width, [&](std::uint64_t key) { first = Most{}(first, key); });
  std::uint64_t chosen = block_reduce(first, s.partials, Most{}, Weight{0});
  if (a.rule.temperature > 0 && can_weigh(logit_of_key(chosen))) {
    SampleWeights<double> weights{.highest = logit_of_key(chosen), .temperature = a.rule.temperature};
    if (a.rule.top_k > 0 && a.rule.top_k < a.width)
      weights.last_key = key_at(s, a, logits, static_cast<Weight>(a.rule.top_k - 1), [](std::uint64_t) { return 1; });
    if (a.rule.top_p < 1) {
      const Weight enough = share_of(a.rule.top_p, total(s, a, logits, weights));
      weights.last_key = key_at(s, a, logits, enough > 0 ? enough - 1 : 0, weights);
    }
    if (a.rule.min_p > 0) weights.least = share_of(a.rule.min_p, std::uint64_t{1} << kSampleBits);
    const auto* place = a.place + 2 * row;
    const auto words = philox(a.rule.seed, static_cast<std::uint64_t>(place[0]), static_cast<std::uint64_t>(place[1]));
    chosen = key_at(s, a, logits, sample_point(words, total(s, a, logits, weights)), weights);
  }
  if (threadIdx.x == 0) a.tokens[row] = number_of_key(chosen);
}

}  // namespace

void run_cuda(Ctx& ctx, const Sample& a) {
  const bool penalizes = a.rule.repetition_penalty != 1 && a.seen.numel() > 0;
  const Args args{.tokens = a.tokens.as<std::int32_t>(),
                  .logits = a.logits.as<float>(),
                  .place = a.place.as<std::int64_t>(),
                  .seen = penalizes ? a.seen.as<std::int32_t>() : nullptr,
                  .ends = penalizes ? a.ends.as<std::int32_t>() : nullptr,
                  .rule = a.rule,
                  .stride = static_cast<int>(a.logits.shape[1]),
                  .width = static_cast<int>(a.width())};
  launch(ctx, "sample", sample_rows, {static_cast<unsigned>(a.tokens.numel()), kThreads, sizeof(Shared)}, args);
}

}  // namespace qtrain::ops
