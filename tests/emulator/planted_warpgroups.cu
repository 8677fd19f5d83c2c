#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/emulator/planted.h"

/// Mistakes with asynchronous products of warpgroups.
namespace qtrain::testing {
namespace {

constexpr int kGroup = 128, kSize = 64;

struct alignas(1024) Factors {
  Bf16 a[kSize][kSize], b[kSize][kSize];  // rows, columns; chunks of eight are swizzled
};

enum class Flaw : std::uint8_t {
  none,
  no_proxy_fence,
  proxy_fence_before_writing,
  no_barrier,
  no_fence,
  no_wait,
  waits_for_less,
  overwrites_factors,
  writes_accumulator,
  other_factors,
  left_out_by_a_warp,
  not_swizzled
};

__device__ __forceinline__ void fill(Factors& s, float shift) {
  for (int i = static_cast<int>(threadIdx.x); i < kSize * kSize; i += kGroup) {
    const int row = i / kSize, k = i % kSize, at = (k / 8 ^ row % 8) * 8 + k % 8;
    s.a[row][at] = from_float<Bf16>(static_cast<float>((row * 5 + k * 3) % 7 - 3) + shift);
    s.b[row][at] = from_float<Bf16>(static_cast<float>((row * 2 + k * 5) % 9 - 4));
  }
}

/// y = a b^T.
template <Flaw F>
__global__ void multiply_in_group(float* y) {
  Factors& s = shared_memory<Factors>();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  if constexpr (F == Flaw::proxy_fence_before_writing) ptx::fence_proxy_async();
  fill(s, 0);
  if constexpr (F != Flaw::no_proxy_fence && F != Flaw::proxy_fence_before_writing) ptx::fence_proxy_async();
  if constexpr (F != Flaw::no_barrier) __syncthreads();
  constexpr std::uint64_t kLayout = F == Flaw::not_swizzled ? 0x0000'0040'0001'0000 : 0x4000'0040'0001'0000;
  const std::uint64_t a = kLayout + (ptx::shared_address(s.a) >> 4), b = kLayout + (ptx::shared_address(s.b) >> 4);
  float d[1][kSize / 8][4] = {};
  ptx::wgmma_settle(d[0]);
  if constexpr (F != Flaw::no_fence) ptx::wgmma_fence();
  if (F != Flaw::left_out_by_a_warp || warp != 3)
    for (unsigned k = 0; k < kSize / 16; ++k) {
      const unsigned moved = F == Flaw::other_factors && warp == 2 ? 0 : 2 * k;
      ptx::wgmma<Bf16, ptx::Major::k, ptx::Sum::adds>(d[0], a + moved, b + 2 * k);
    }
  ptx::wgmma_commit();
  if constexpr (F == Flaw::overwrites_factors) fill(s, 1);
  if constexpr (F == Flaw::writes_accumulator) d[0][0][0] = 0;
  if constexpr (F == Flaw::waits_for_less)
    ptx::wgmma_wait<1>();
  else if constexpr (F != Flaw::no_wait)
    ptx::wgmma_wait<0>();
  ptx::wgmma_settle(d[0]);
  for (int i = 0; i < kSize / 2; ++i) {
    const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
    y[row * kSize + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[0][i / 4][i % 4];
  }
}

template <Flaw F>
std::vector<float> run_group(Ctx& ctx, Variant v) {
  Floats y(ctx, kSize * kSize);
  launch(ctx, "group", v == Variant::right ? multiply_in_group<Flaw::none> : multiply_in_group<F>,
         {1, kGroup, sizeof(Factors)}, y.data());
  return y.values();
}

std::vector<float> product_by_hand() {
  std::vector<float> y;
  for (int i = 0; i < kSize; ++i)
    for (int n = 0; n < kSize; ++n) {
      float sum = 0;
      for (int k = 0; k < kSize; ++k)
        sum += static_cast<float>((i * 5 + k * 3) % 7 - 3) * static_cast<float>((n * 2 + k * 5) % 9 - 4);
      y.push_back(sum);
    }
  return y;
}

}  // namespace

std::vector<Planted> planted_in_warpgroups() {
  const std::vector<float> y = product_by_hand();
  return {
      {"factors_without_proxy_fence", run_group<Flaw::no_proxy_fence>, y, "without a fence.proxy.async after it"},
      {"factors_written_after_the_proxy_fence", run_group<Flaw::proxy_fence_before_writing>, y,
       "without a fence.proxy.async after it"},
      {"factors_without_barrier", run_group<Flaw::no_barrier>, y,
       "uninitialized: reads shared memory|race: reads shared memory|race: writes shared memory|without a fence.proxy"},
      {"product_without_fence", run_group<Flaw::no_fence>, y, "before any wgmma.fence|since the last wgmma.fence"},
      {"product_nobody_waits_for", run_group<Flaw::no_wait>, y, "that nobody waited for|too early: uses register"},
      {"product_waited_for_too_little", run_group<Flaw::waits_for_less>, y,
       "that nobody waited for|too early: uses register"},
      {"factors_overwritten_during_product", run_group<Flaw::overwrites_factors>, y,
       "race: writes shared memory|race: reads shared memory"},
      {"accumulator_written_during_product", run_group<Flaw::writes_accumulator>, y,
       "writes an accumulator of wgmma before waiting", true},
      {"warps_multiply_other_factors", run_group<Flaw::other_factors>, y, "than the other warps of its warpgroup"},
      {"warp_leaves_out_a_product", run_group<Flaw::left_out_by_a_warp>, y, "fewer products than its warpgroup"},
      {"factors_not_swizzled", run_group<Flaw::not_swizzled>, y, "not that of 128-byte swizzle"},
  };
}

}  // namespace qtrain::testing
