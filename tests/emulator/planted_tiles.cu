#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/emulator/planted.h"

/// Mistakes with asynchronous copies and matrix fragments.
namespace qtrain::testing {
namespace {

constexpr int kThreads = 32;

struct alignas(16) Stages {
  float v[2][4 * kThreads];
};

enum class Wait : std::uint8_t { all, too_few, none, never };

/// Adds up the stages of x, copying one while the previous one is added.
template <Wait W>
__global__ void add_stages(float* y, const float* x, int stages) {
  Stages& s = shared_memory<Stages>();
  const unsigned t = threadIdx.x;
  float sum = 0;
  ptx::cp_async<16>(&s.v[0][4 * t], x + 4 * t);
  ptx::cp_async_commit();
  for (int k = 0; k < stages; ++k) {
    if (k + 1 < stages) ptx::cp_async<16>(&s.v[(k + 1) % 2][4 * t], x + (k + 1) * 4 * kThreads + 4 * t);
    ptx::cp_async_commit();
    if constexpr (W == Wait::too_few)
      ptx::cp_async_wait<2>();
    else if constexpr (W != Wait::none)
      ptx::cp_async_wait<1>();
    __syncthreads();
    sum += s.v[k % 2][(t + 37) % (4 * kThreads)];
    __syncthreads();
  }
  y[t] = sum;
  if constexpr (W == Wait::never) {
    ptx::cp_async<16>(&s.v[0][4 * t], x + 4 * t);
    ptx::cp_async_commit();
  } else {
    ptx::cp_async_wait<0>();
  }
}

std::vector<float> staged() {
  std::vector<float> v(kThreads);
  for (int t = 0; t < kThreads; ++t)
    for (int k = 0; k < 3; ++k) v[static_cast<std::size_t>(t)] += static_cast<float>(128 * k + (t + 37) % 128);
  return v;
}

template <Wait W>
std::vector<float> stages(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(3 * 4 * kThreads)), y(ctx, kThreads);
  launch(ctx, "stages", v == Variant::right ? add_stages<Wait::all> : add_stages<W>, {1, kThreads, sizeof(Stages)},
         y.data(), x.data(), 3);
  return y.values();
}

struct alignas(16) Operands {
  Bf16 a[16][16], b[8][16];  // b as [n][k]
};

/// y [16, 8] = a [16, 16] b; the wrong variant loads the fragments of b transposed, or a from addresses that are not
/// multiples of 16.
template <Variant V, int Shift>
__global__ void multiply(float* y, const float* a, const float* b) {
  Operands& s = shared_memory<Operands>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 16; i += kThreads) s.a[i / 16][i % 16] = from_float<Bf16>(a[i]);
  for (int i = lane; i < 8 * 16; i += kThreads) s.b[i / 16][i % 16] = from_float<Bf16>(b[i]);
  __syncthreads();
  std::uint32_t fa[4], fb[2];
  ptx::ldmatrix(fa, &s.a[lane % 16][lane / 16 * 8 + Shift]);
  const Bf16* row = &s.b[lane % 8][lane / 8 % 2 * 8];
  if constexpr (V == Variant::right)
    ptx::ldmatrix(fb, row);
  else
    ptx::ldmatrix_transposed(fb, row);
  float d[4] = {};
  ptx::mma_bf16(d, fa, fb, d);
  for (int i = 0; i < 4; ++i) y[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

float a_of(int i, int k) {
  return static_cast<float>((i * 5 + k * 3) % 7 - 3);
}
float b_of(int n, int k) {
  return static_cast<float>((n * 2 + k * 5) % 9 - 4);
}

template <Variant V, int Shift>
std::vector<float> run_gemm(Ctx& ctx, Variant v) {
  std::vector<float> a, b;
  for (int i = 0; i < 256; ++i) a.push_back(a_of(i / 16, i % 16));
  for (int i = 0; i < 128; ++i) b.push_back(b_of(i / 16, i % 16));
  Floats da(ctx, a), db(ctx, b), y(ctx, 128);
  launch(ctx, "gemm", v == Variant::right ? multiply<Variant::right, 0> : multiply<V, Shift>,
         {1, kThreads, sizeof(Operands)}, y.data(), da.data(), db.data());
  return y.values();
}

std::vector<float> gemm_by_hand() {
  std::vector<float> y;
  for (int i = 0; i < 16; ++i)
    for (int n = 0; n < 8; ++n) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a_of(i, k) * b_of(n, k);
      y.push_back(sum);
    }
  return y;
}

}  // namespace

std::vector<Planted> planted_in_tiles() {
  return {
      {"copy_read_without_wait", stages<Wait::none>, staged(), "too early: reads shared memory"},
      {"copy_read_one_group_early", stages<Wait::too_few>, staged(), "too early: reads shared memory"},
      {"copies_nobody_waits_for", stages<Wait::never>, staged(), "cp.async copies nobody waited for"},
      {"transposed_fragment", run_gemm<Variant::wrong, 0>, gemm_by_hand(), ""},
      {"misaligned_ldmatrix", run_gemm<Variant::right, 4>, gemm_by_hand(), "ldmatrix: a shared address"},
  };
}

}  // namespace qtrain::testing
