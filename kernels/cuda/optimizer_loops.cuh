#pragma once
#include <algorithm>

#include "kernels/code_table.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

/// Loops for optimizers. A rule is a struct with
///   static constexpr int kStates; const double *hyperparameters, *factor;
///   struct Step with float operator()(float param, float grad, float (&state)[kStates]) const
///   __device__ Step step() const, which reads from device memory
/// The step returns the new parameter and updates the state. Nothing changes if factor[1] is 0.
namespace qtrain {

/// A 16-bit copy of parameters; null data: none.
struct WeightCopy {
  std::uint16_t* data = nullptr;
  bool half = false;  ///< f16, not bf16

  template <int N>
  __device__ __forceinline__ void put_pack(std::int64_t i, const float (&v)[N]) const {
    if (!data) return;
    Pack<std::uint16_t, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = half ? from_float<F16>(v[j]).bits : from_float<Bf16>(v[j]).bits;
    store_pack<N>(data + i, out);
  }
};
inline WeightCopy weight_copy(Tensor copy) {
  return copy ? WeightCopy{reinterpret_cast<std::uint16_t*>(copy.data), copy.dtype == DType::f16} : WeightCopy{};
}
/// Whether packs of four values can be moved.
template <class... P>
bool updates_packs(const WeightCopy& copy, const P*... pointers) {
  return packable<float>(0, pointers...) == Packs::yes && reinterpret_cast<std::uintptr_t>(copy.data) % 8 == 0;
}

/// Parameter, gradient and state, n values each.
template <class Rule>
struct ElementUpdate {
  float* param;
  const float* grad;
  float* state[Rule::kStates == 0 ? 1 : Rule::kStates];
  Rule rule;
  WeightCopy copy = {};

  template <int N>
  __device__ __forceinline__ void at(std::int64_t i, const typename Rule::Step& step) const {
    constexpr int kStates = Rule::kStates;
    float p[N], g[N], s[kStates == 0 ? 1 : kStates][N];
    load_floats(p, param + i);
    load_floats(g, grad + i);
#pragma unroll
    for (int k = 0; k < kStates; ++k) load_floats(s[k], state[k] + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float of_one[kStates == 0 ? 1 : kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) of_one[k] = s[k][j];
      p[j] = step(p[j], g[j], of_one);
#pragma unroll
      for (int k = 0; k < kStates; ++k) s[k][j] = of_one[k];
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) Target<float>{state[k]}.template put_pack<N>(i, s[k]);
    Target<float>{param}.put_pack<N>(i, p);
    copy.put_pack<N>(i, p);
  }
};

/// Packs that a thread updates. What they share is read from device memory, and computed in f64, once for all of them.
inline constexpr int kUpdatedPacks = 4;

/// An update is a struct with a `rule` and
///   template <int N> __device__ void at(std::int64_t i, const Step& step) const
template <int N, class Update>
__global__ void __launch_bounds__(kElementThreads) update_packs(Update update, std::int64_t n) {
  if (update.rule.factor[1] == 0) return;
  const auto step = update.rule.step();
  const std::int64_t first = (std::int64_t{blockIdx.x} * kUpdatedPacks * kElementThreads + threadIdx.x) * N;
#pragma unroll
  for (int k = 0; k < kUpdatedPacks; ++k) {
    const std::int64_t i = first + std::int64_t{k} * kElementThreads * N;
    if (i + N <= n)
      update.template at<N>(i, step);
    else
      for (std::int64_t j = i; j < n; ++j) update.template at<1>(j, step);
  }
}
template <class Update>
void launch_update(Ctx& ctx, const char* name, const Update& update, std::int64_t n, bool packs) {
  dispatch_packs<float>(packs ? Packs::yes : Packs::no, [&]<int N>() {
    const auto blocks = static_cast<unsigned>(ceil_div(n, std::int64_t{kUpdatedPacks} * kElementThreads * N));
    launch(ctx, name, update_packs<N, Update>, {blocks, kElementThreads}, update, n);
  });
}

template <class Rule>
void update_elements(Ctx& ctx, const char* name, const ElementUpdate<Rule>& update, std::int64_t n) {
  bool packs = updates_packs(update.copy, update.param, update.grad);
  for (int k = 0; k < Rule::kStates; ++k) packs = packs && packable<float>(0, update.state[k]) == Packs::yes;
  launch_update(ctx, name, update, n, packs);
}

/// A state tensor in 8 bits.
struct CodedPointers {
  std::uint8_t* codes;
  float* absmax;
  const ops::CodeTable* table;
};
inline CodedPointers coded_pointers(const ops::CodedState& s) {
  return {s.codes.as<std::uint8_t>(), s.absmax.as<float>(), reinterpret_cast<const ops::CodeTable*>(s.table.data)};
}

template <class Rule>
struct CodedUpdate {
  float* param;
  const float* grad;
  CodedPointers state[Rule::kStates];
  Rule rule;
  WeightCopy copy = {};
};

/// Each lane of a warp holds 8 of the 256 values of a block.
inline constexpr int kCodedThreads = 256, kOfLane = static_cast<int>(ops::kCodeBlock) / kWarp;

template <int States>
struct CodedShared {
  ops::CodeTable tables[States];
};

/// The nearest code of x in [-1, 1].
__device__ __forceinline__ std::uint8_t nearest(const ops::CodeTable& table, float x) {
  using ops::CodeTable;
  const std::uint32_t bits = __float_as_uint(x);
  const auto leading = static_cast<std::int32_t>((bits & 0x7fffffffu) >> CodeTable::kLeadingBits);
  const std::int32_t bucket = min(max(leading - CodeTable::kLowest, 0), CodeTable::kBuckets - 1);
  const int first = table.first[bucket + (bits >> 31 != 0 ? CodeTable::kBuckets : 0)];
  return static_cast<std::uint8_t>(x > table.limits[first] ? first + 1 : first);
}

/// Iterates over the values of a lane: packs of N at positions (slot * 32 + lane) * N of the block.
template <int N, class F>
__device__ __forceinline__ void for_lane_packs(std::int64_t count, const F& f) {
#pragma unroll
  for (int slot = 0; slot < kOfLane / N; ++slot) {
    const int first = (slot * kWarp + static_cast<int>(threadIdx.x) % kWarp) * N;
    if (first + N <= count) f(slot * N, first);
  }
}

/// One warp updates one block of values.
template <int N, class Rule>
__device__ __forceinline__ void update_block(const CodedUpdate<Rule>& a, const ops::CodeTable* tables,
                                             std::int64_t block, std::int64_t n) {
  constexpr int kStates = Rule::kStates;
  const std::int64_t begin = block * ops::kCodeBlock, count = n - begin < ops::kCodeBlock ? n - begin : ops::kCodeBlock;
  const auto step = a.rule.step();
  float s[kStates][kOfLane] = {}, largest[kStates] = {};
  float absmax[kStates];
#pragma unroll
  for (int k = 0; k < kStates; ++k) absmax[k] = a.state[k].absmax[block];
  for_lane_packs<N>(count, [&](int slot, int first) {
    float p[N], g[N];
    Pack<std::uint8_t, N> codes[kStates];
    load_floats(p, a.param + begin + first);
    load_floats(g, a.grad + begin + first);
#pragma unroll
    for (int k = 0; k < kStates; ++k) codes[k] = load_pack<N>(a.state[k].codes + begin + first);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float of_one[kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) of_one[k] = tables[k].values[codes[k].v[j]] * absmax[k];
      p[j] = step(p[j], g[j], of_one);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        s[k][slot + j] = of_one[k];
        largest[k] = Larger{}(fabsf(of_one[k]), largest[k]);
      }
    }
    Target<float>{a.param}.put_pack<N>(begin + first, p);
    a.copy.template put_pack<N>(begin + first, p);
  });
#pragma unroll
  for (int k = 0; k < kStates; ++k) {
    const float scale = warp_reduce(largest[k], Larger{}), inverse = scale > 0 ? 1 / scale : 0;
    if (threadIdx.x % kWarp == 0) a.state[k].absmax[block] = scale;
    for_lane_packs<N>(count, [&](int slot, int first) {
      Pack<std::uint8_t, N> codes;
#pragma unroll
      for (int j = 0; j < N; ++j) codes.v[j] = nearest(tables[k], s[k][slot + j] * inverse);
      store_pack<N>(a.state[k].codes + begin + first, codes);
    });
  }
}

/// Warp w takes blocks w, w + warps, ... Limited to three resident thread blocks, which leaves enough registers.
template <int N, class Rule>
__global__ void __launch_bounds__(kCodedThreads, 3) update_coded(CodedUpdate<Rule> a, std::int64_t n) {
  if (a.rule.factor[1] == 0) return;
  constexpr int kWords = sizeof(ops::CodeTable) / sizeof(uint4);
  auto& shared = shared_memory<CodedShared<Rule::kStates>>();
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    for (int i = static_cast<int>(threadIdx.x); i < kWords; i += kCodedThreads)
      reinterpret_cast<uint4*>(&shared.tables[k])[i] = reinterpret_cast<const uint4*>(a.state[k].table)[i];
  __syncthreads();
  const std::int64_t blocks = ceil_div(n, ops::kCodeBlock), warps = std::int64_t{gridDim.x} * (kCodedThreads / kWarp);
  std::int64_t block = (std::int64_t{blockIdx.x} * kCodedThreads + threadIdx.x) / kWarp;
  for (; block < blocks; block += warps) update_block<N>(a, shared.tables, block, n);
}

template <class Rule>
void update_blocks(Ctx& ctx, const char* name, const CodedUpdate<Rule>& update, std::int64_t n) {
  // Loading the tables costs as much as a few blocks, so a warp takes several blocks if there are enough of them.
  constexpr std::int64_t kWarps = kCodedThreads / kWarp, kBusy = 8192, kMax = 8;
  const std::int64_t blocks = ceil_div(n, ops::kCodeBlock), of_warp = std::clamp<std::int64_t>(blocks / kBusy, 1, kMax);
  bool together = updates_packs(update.copy, update.param, update.grad) && n % 4 == 0;
  for (const CodedPointers& s : update.state) together = together && packable<float>(0, s.codes) == Packs::yes;
  const Grid grid{static_cast<unsigned>(ceil_div(blocks, kWarps * of_warp)), kCodedThreads,
                  sizeof(CodedShared<Rule::kStates>)};
  dispatch_packs<float>(together ? Packs::yes : Packs::no,
                        [&]<int N>() { launch(ctx, name, update_coded<N, Rule>, grid, update, n); });
}

}  // namespace qtrain
