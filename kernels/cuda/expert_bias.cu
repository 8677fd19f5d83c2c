#include "kernels/expert_bias.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;

template <class T>
struct AddArgs {
  T* y;
  const float* bias;
  const std::int32_t* offsets;
  int experts, width;

  /// The last expert whose rows start at or before r.
  __device__ __forceinline__ int expert_of(int r) const {
    int low = 0, high = experts;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (offsets[middle] <= r ? low : high) = middle;
    }
    return low;
  }
};

/// One block per row.
template <int N, class T>
__global__ void __launch_bounds__(kThreads) add_expert_bias(AddArgs<T> a) {
  const int r = static_cast<int>(blockIdx.x);
  if (r >= a.offsets[a.experts]) return;
  const float* bias = a.bias + std::int64_t{a.expert_of(r)} * a.width;
  for (int c = static_cast<int>(threadIdx.x) * N; c < a.width; c += static_cast<int>(kThreads) * N) {
    float v[N];
    load_floats(v, bias + c);
    Target<T>{a.y, true}.template put_pack<N>(std::int64_t{r} * a.width + c, v);
  }
}

constexpr unsigned kWarps = 8;

template <class T>
struct GradArgs {
  Target<float> dbias;
  const T* dy;
  const std::int32_t* offsets;
  int width;
};

struct WarpSums {
  float v[kWarps][kWarp];
};

/// Block (chunk, expert) sums 32 columns of an expert's rows; its warps take turns with the rows.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) expert_bias_sums(GradArgs<T> a) {
  auto& sums = shared_memory<WarpSums>();
  const int expert = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp, c = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (c < a.width)
    for (std::int64_t r = a.offsets[expert] + warp; r < a.offsets[expert + 1]; r += kWarps)
      sum += to_float(a.dy[r * a.width + c]);
  sums.v[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= a.width) return;
  sum = 0;
  for (unsigned w = 0; w < kWarps; ++w) sum += sums.v[w][lane];
  a.dbias.put(std::int64_t{expert} * a.width + c, sum);
}

}  // namespace

void run_cuda(Ctx& ctx, const ExpertBias& a) {
  dispatch_storage(a.y.dtype, [&]<class T>() {
    const AddArgs<T> args{.y = a.y.as<T>(),
                          .bias = a.bias.as<float>(),
                          .offsets = a.offsets.as<std::int32_t>(),
                          .experts = static_cast<int>(a.bias.shape[0]),
                          .width = static_cast<int>(a.y.shape[1])};
    dispatch_packs<T>(packable<T>(args.width, args.y, args.bias), [&]<int N>() {
      launch(ctx, "expert_bias", add_expert_bias<N, T>, {static_cast<unsigned>(a.y.shape[0]), kThreads}, args);
    });
  });
}

void run_cuda(Ctx& ctx, const ExpertBiasGrad& a) {
  dispatch_storage(a.dy.dtype, [&]<class T>() {
    const GradArgs<T> args{.dbias = target_of<float>(a.dbias),
                           .dy = a.dy.as<T>(),
                           .offsets = a.offsets.as<std::int32_t>(),
                           .width = static_cast<int>(a.dy.shape[1])};
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.width, kWarp)), static_cast<unsigned>(a.dbias.t.shape[0]));
    launch(ctx, "expert_bias_grad", expert_bias_sums<T>, {blocks, kWarps * kWarp, sizeof(WarpSums)}, args);
  });
}

}  // namespace qtrain::ops
