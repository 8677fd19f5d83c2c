#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "tests/emulator/planted.h"

/// Mistakes in how the threads of a block cooperate.
namespace qtrain::testing {
namespace {

constexpr int kThreads = 96;

struct Line {
  float v[kThreads];
};

std::vector<float> reversed(std::size_t n) {
  std::vector<float> v = counting(n);
  return {v.rbegin(), v.rend()};
}

template <Variant V>
__global__ void reverse(float* y, const float* x) {
  Line& line = shared_memory<Line>();
  line.v[threadIdx.x] = x[threadIdx.x];
  if constexpr (V == Variant::right) __syncthreads();
  y[threadIdx.x] = line.v[kThreads - 1 - threadIdx.x];
}

/// One thread per block returns early in the wrong variant.
template <Variant V>
__global__ void reverse_tail(float* y, const float* x, int n) {
  Line& line = shared_memory<Line>();
  const int i = static_cast<int>(threadIdx.x);
  if constexpr (V == Variant::wrong)
    if (i >= n) return;
  if (i < n) line.v[i] = x[i];
  __syncthreads();
  if (i < n) y[i] = line.v[n - 1 - i];
}

template <Variant V>
__global__ void divergent_barrier(float* y, const float* x) {
  Line& line = shared_memory<Line>();
  line.v[threadIdx.x] = x[threadIdx.x];
  if (V == Variant::right || threadIdx.x < kThreads / 2) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = line.v[kThreads - 1 - threadIdx.x];
}

template <Variant V>
__global__ void barrier_for_some(float* y, const float* x) {
  Line& line = shared_memory<Line>();
  line.v[threadIdx.x] = x[threadIdx.x];
  if (V == Variant::right || threadIdx.x < kThreads / 2) __syncthreads();
  __syncwarp();
  y[threadIdx.x] = V == Variant::right ? line.v[kThreads - 1 - threadIdx.x] : line.v[threadIdx.x];
}

/// Counts the values of each remainder.
template <Variant V>
__global__ void histogram(float* y, const float* x) {
  Line& line = shared_memory<Line>();
  if (threadIdx.x < 4) line.v[threadIdx.x] = 0;
  __syncthreads();
  const int bin = static_cast<int>(x[threadIdx.x]) % 4;
  if constexpr (V == Variant::right)
    atomicAdd(&line.v[bin], 1.0f);
  else
    line.v[bin] += 1;
  __syncthreads();
  if (threadIdx.x < 4) y[threadIdx.x] = line.v[threadIdx.x];
}

/// Rotates each warp's values by one lane through shared memory.
template <Variant V>
__global__ void rotate_warp(float* y, const float* x) {
  Line& line = shared_memory<Line>();
  const unsigned lane = threadIdx.x % kWarp, first = threadIdx.x - lane;
  line.v[threadIdx.x] = x[threadIdx.x];
  if constexpr (V == Variant::right) __syncwarp();
  y[threadIdx.x] = line.v[first + (lane + 1) % kWarp];
}
std::vector<float> rotated() {
  std::vector<float> v(kThreads);
  for (int i = 0; i < kThreads; ++i) v[static_cast<std::size_t>(i)] = static_cast<float>(i / 32 * 32 + (i + 1) % 32);
  return v;
}

/// Sums the even lanes only.
template <Variant V>
__global__ void sum_even(float* y, const float* x) {
  constexpr unsigned kEven = 0x55555555u;
  float v = x[threadIdx.x];
  if (threadIdx.x % 2 == 0)
    for (int bit = 16; bit > 1; bit /= 2) v += __shfl_xor_sync(V == Variant::right ? kEven : kAllLanes, v, bit);
  if (threadIdx.x == 0) y[0] = v;
}

/// Two sums through the same shared memory; the wrong variant does not wait before it reuses it.
template <Variant V>
__global__ void two_sums(float* y, const float* x) {
  BlockPartials<float>& partials = shared_memory<BlockPartials<float>>();
  float sums[2];
  for (int k = 0; k < 2; ++k) {
    const float v = warp_sum(x[threadIdx.x] + static_cast<float>(k));
    if (threadIdx.x % kWarp == 0) partials.v[threadIdx.x / kWarp] = v;
    __syncthreads();
    sums[k] = 0;
    for (int w = 0; w < kThreads / kWarp; ++w) sums[k] += partials.v[w];
    if constexpr (V == Variant::right) __syncthreads();
  }
  if (threadIdx.x == 0) y[0] = sums[0], y[1] = sums[1];
}

/// The first warp's part is never written in the wrong variant.
template <Variant V>
__global__ void sum_of_warps(float* y, const float* x) {
  BlockPartials<float>& partials = shared_memory<BlockPartials<float>>();
  const float v = warp_sum(x[threadIdx.x]);
  const unsigned warp = threadIdx.x / kWarp;
  if (threadIdx.x % kWarp == 0 && (V == Variant::right || warp > 0)) partials.v[warp] = v;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += partials.v[w];
  if (threadIdx.x == 0) y[0] = sum;
}

/// Blocks add to sums one after another, in the order in which they begin. Mistakes: not waiting for the previous
/// block, waiting in one thread without a barrier, and passing on before all threads have stored.
enum class Pass : std::uint8_t { right, unordered, unseen, early };
struct Turns {
  int next, done;
};
template <Pass P>
__global__ void add_in_turn(float* sums, const float* x, Turns* turns) {
  int& number = shared_memory<int>();
  if (threadIdx.x == 0) number = atomicAdd(&turns->next, 1);
  __syncthreads();
  if (threadIdx.x == 0 && P != Pass::unordered)
    while (ptx::load_acquire(&turns->done) != number) {
    }
  if constexpr (P != Pass::unseen) __syncthreads();
  sums[threadIdx.x] += x[threadIdx.x];
  if constexpr (P != Pass::early) __syncthreads();
  if (threadIdx.x == 0) ptx::store_release(&turns->done, number + 1);
}

/// Likewise with a thread that waits for the turn and passes it on, by way of barriers in shared memory. Mistakes: not
/// waiting for that thread, and passing on before the others have added.
enum class Kept : std::uint8_t { right, unwaited, early };
struct KeptTurn {
  int number;
  ptx::Mbarrier turn, added;
};
template <Kept K>
__global__ void add_in_kept_turn(float* sums, const float* x, Turns* turns) {
  KeptTurn& s = shared_memory<KeptTurn>();
  if (threadIdx.x == kThreads) {
    s.number = atomicAdd(&turns->next, 1);
    ptx::init(s.turn, 1);
    ptx::init(s.added, kThreads / kWarp);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  if (threadIdx.x > kThreads) return;
  if (threadIdx.x == kThreads) {
    while (ptx::load_acquire(&turns->done) != s.number) {
    }
    ptx::arrive(s.turn);
    if (K != Kept::early) ptx::wait(s.added, 0);
    return ptx::store_release(&turns->done, s.number + 1);
  }
  if (K != Kept::unwaited) ptx::wait(s.turn, 0);
  sums[threadIdx.x] += x[threadIdx.x];
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ptx::arrive(s.added);
}

using InTurn = void (*)(float*, const float*, Turns*);
Planted in_turn(const char* name, InTurn right, InTurn wrong, unsigned threads = kThreads) {
  constexpr unsigned kBlocks = 4;
  std::vector<float> sums = counting(kThreads);
  for (float& v : sums) v *= kBlocks;
  return {.name = name,
          .run =
              [=](Ctx& ctx, Variant v) {
                Floats x(ctx, counting(kThreads)), y(ctx, std::vector<float>(kThreads));
                OnGpu<Turns> turns(ctx, std::vector<Turns>(1));
                launch(ctx, name, v == Variant::right ? right : wrong, {kBlocks, threads, sizeof(KeptTurn)}, y.data(),
                       x.data(), turns.data());
                return y.values();
              },
          .result = sums,
          .complaint = "race: "};
}

using Kernel = void (*)(float*, const float*);
struct Pair {
  const char* name;
  Kernel right, wrong;
  std::vector<float> result;
  std::string complaint;
};

Planted planted(const Pair& p) {
  return {.name = p.name,
          .run =
              [p](Ctx& ctx, Variant v) {
                Floats x(ctx, counting(kThreads)), y(ctx, p.result.size());
                launch(ctx, p.name, v == Variant::right ? p.right : p.wrong, {1, kThreads, sizeof(Line)}, y.data(),
                       x.data());
                return y.values();
              },
          .result = p.result,
          .complaint = p.complaint};
}

}  // namespace

std::vector<Planted> planted_in_blocks() {
  using enum Variant;
  std::vector<Planted> list;
  for (const Pair& p :
       std::vector<Pair>{{"missing_barrier", reverse<right>, reverse<wrong>, reversed(kThreads), "race|uninitialized"},
                         {"divergent_barrier", divergent_barrier<right>, divergent_barrier<wrong>, reversed(kThreads),
                          "is at another __syncthreads"},
                         {"barrier_for_some", barrier_for_some<right>, barrier_for_some<wrong>, reversed(kThreads),
                          "deadlock: no thread of the block can run"},
                         {"shared_race", histogram<right>, histogram<wrong>, {24, 24, 24, 24}, "race: "},
                         {"missing_syncwarp", rotate_warp<right>, rotate_warp<wrong>, rotated(), "race|uninitialized"},
                         {"wrong_mask", sum_even<right>, sum_even<wrong>, {240}, "a shuffle"},
                         {"place_used_again", two_sums<right>, two_sums<wrong>, {4560, 4656}, "race: "},
                         {"uninitialized_partial",
                          sum_of_warps<right>,
                          sum_of_warps<wrong>,
                          {4560},
                          "uninitialized: reads shared|uninitialized: uses"}})
    list.push_back(planted(p));
  list.push_back(in_turn("blocks_without_order", add_in_turn<Pass::right>, add_in_turn<Pass::unordered>));
  list.push_back(in_turn("acquired_by_one_thread", add_in_turn<Pass::right>, add_in_turn<Pass::unseen>));
  list.push_back(in_turn("released_too_early", add_in_turn<Pass::right>, add_in_turn<Pass::early>));
  list.push_back(in_turn("kept_turn_not_waited_for", add_in_kept_turn<Kept::right>, add_in_kept_turn<Kept::unwaited>,
                         kThreads + kWarp));
  list.push_back(in_turn("kept_turn_passed_on_early", add_in_kept_turn<Kept::right>, add_in_kept_turn<Kept::early>,
                         kThreads + kWarp));
  list.push_back({.name = "early_return",
                  .run =
                      [](Ctx& ctx, Variant v) {
                        Floats x(ctx, counting(70)), y(ctx, 70);
                        launch(ctx, "early_return", v == right ? reverse_tail<right> : reverse_tail<wrong>,
                               {1, kThreads, sizeof(Line)}, y.data(), x.data(), 70);
                        return y.values();
                      },
                  .result = reversed(70),
                  .complaint = "waits for threads that have left the kernel: 26 of 96"});
  return list;
}

}  // namespace qtrain::testing
