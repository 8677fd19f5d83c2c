#include "kernels/expert_rows.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

/// One block per row that is written, in packs of N elements.
namespace qtrain::ops {
namespace {

constexpr unsigned kRowThreads = 128;

/// y[p] (+)= weights[slots[p]] * x[slots[p] / k].
template <class T>
struct SpreadArgs {
  Target<T> y;
  const T* x;
  const std::int32_t* slots;
  const float* weights;  ///< null: all are 1
  int k, width;
};
template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) spread_rows(SpreadArgs<T> a) {
  const std::int64_t p = blockIdx.x;
  const int slot = a.slots[p];
  const float weight = a.weights ? a.weights[slot] : 1.0f;
  const T* from = a.x + std::int64_t{slot / a.k} * a.width;
  for (int c = static_cast<int>(threadIdx.x) * N; c < a.width; c += static_cast<int>(kRowThreads) * N) {
    float v[N];
    load_floats(v, from + c);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= weight;
    a.y.template put_pack<N>(p * a.width + c, v);
  }
}
template <class T>
void spread(Ctx& ctx, const char* name, std::int64_t rows, const SpreadArgs<T>& args) {
  dispatch_packs<T>(packable<T>(args.width, args.y.data, args.x), [&]<int N>() {
    launch(ctx, name, spread_rows<N, T>, {static_cast<unsigned>(rows), kRowThreads}, args);
  });
}

template <class T>
struct CombineArgs {
  Target<T> y;
  const T* x;
  const std::int32_t* places;
  const float* weights;  ///< null: all are 1
  int k, width;
};
template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) combine_token_rows(CombineArgs<T> a) {
  const std::int64_t t = blockIdx.x;
  for (int c = static_cast<int>(threadIdx.x) * N; c < a.width; c += static_cast<int>(kRowThreads) * N) {
    float sum[N] = {};
    for (int j = 0; j < a.k; ++j) {
      const std::int64_t at = t * a.k + j;
      const float weight = a.weights ? a.weights[at] : 1.0f;
      float v[N];
      load_floats(v, a.x + std::int64_t{a.places[at]} * a.width + c);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += weight * v[i];
    }
    a.y.template put_pack<N>(t * a.width + c, sum);
  }
}

template <class T>
struct CombineWeightsArgs {
  Target<float> dweights;
  const T *dy, *x;
  const std::int32_t* places;
  int k, width;
};
/// One block per weight.
template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) combine_weights_grad(CombineWeightsArgs<T> a) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const std::int64_t i = blockIdx.x;
  const T* dy = a.dy + i / a.k * a.width;
  const T* x = a.x + std::int64_t{a.places[i]} * a.width;
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) * N; c < a.width; c += static_cast<int>(kRowThreads) * N) {
    float u[N], v[N];
    load_floats(u, dy + c);
    load_floats(v, x + c);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += u[j] * v[j];
  }
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) a.dweights.put(i, sum);
}

}  // namespace

void run_cuda(Ctx& ctx, const DispatchRows& a) {
  dispatch_storage(a.x.dtype, [&]<class T>() {
    spread<T>(ctx, "dispatch_rows", a.slots.numel(),
              {.y = target_of<T>(store(a.y)),
               .x = a.x.as<T>(),
               .slots = a.slots.as<std::int32_t>(),
               .weights = nullptr,
               .k = static_cast<int>(a.k),
               .width = static_cast<int>(a.x.shape[-1])});
  });
}

void run_cuda(Ctx& ctx, const CombineRows& a) {
  const std::int64_t tokens = a.y.t.shape.rows();
  dispatch_storage(a.x.dtype, [&]<class T>() {
    const CombineArgs<T> args{.y = target_of<T>(a.y),
                              .x = a.x.as<T>(),
                              .places = a.places.as<std::int32_t>(),
                              .weights = a.weights ? a.weights.as<float>() : nullptr,
                              .k = static_cast<int>(a.places.numel() / tokens),
                              .width = static_cast<int>(a.x.shape[-1])};
    dispatch_packs<T>(packable<T>(args.width, args.y.data, args.x), [&]<int N>() {
      launch(ctx, "combine_rows", combine_token_rows<N, T>, {static_cast<unsigned>(tokens), kRowThreads}, args);
    });
  });
}

void run_cuda(Ctx& ctx, const CombineRowsGrad& a) {
  const std::int64_t n = a.slots.numel();
  const int k = static_cast<int>(n / a.dy.shape.rows()), width = static_cast<int>(a.dy.shape[-1]);
  dispatch_storage(a.dy.dtype, [&]<class T>() {
    if (a.dx.wanted())
      spread<T>(ctx, "combine_rows_grad", n,
                {.y = target_of<T>(a.dx),
                 .x = a.dy.as<T>(),
                 .slots = a.slots.as<std::int32_t>(),
                 .weights = a.weights ? a.weights.as<float>() : nullptr,
                 .k = k,
                 .width = width});
    if (!a.dweights.wanted()) return;
    const CombineWeightsArgs<T> args{.dweights = target_of<float>(a.dweights),
                                     .dy = a.dy.as<T>(),
                                     .x = a.x.as<T>(),
                                     .places = a.places.as<std::int32_t>(),
                                     .k = k,
                                     .width = width};
    dispatch_packs<T>(packable<T>(width, args.dy, args.x), [&]<int N>() {
      launch(ctx, "combine_weights_grad", combine_weights_grad<N, T>,
             {static_cast<unsigned>(n), kRowThreads, sizeof(BlockPartials<float>)}, args);
    });
  });
}

}  // namespace qtrain::ops
