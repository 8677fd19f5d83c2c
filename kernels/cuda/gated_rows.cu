#include "kernels/gated_rows.h"

#include "kernels/cuda/glu_gate.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

/// One block per row, in packs of N elements.
namespace qtrain::ops {
namespace {

constexpr unsigned kRowThreads = 128;

template <class T>
struct GateArgs {
  T* y;
  const T *a, *b, *gate;
  int width;
};
template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) add_gated_rows(GateArgs<T> g) {
  const std::int64_t row = std::int64_t{blockIdx.x} * g.width;
  const float share = sigmoid<T>(to_float(g.gate[blockIdx.x]));
  for (int c = static_cast<int>(threadIdx.x) * N; c < g.width; c += static_cast<int>(kRowThreads) * N) {
    float sum[N], branch[N];
    load_floats(sum, g.a + row + c);
    load_floats(branch, g.b + row + c);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += share * branch[i];
    Target<T>{g.y}.template put_pack<N>(row + c, sum);
  }
}

template <class T>
struct GateGradArgs {
  Target<T> db, dgate;
  const T *dy, *b, *gate;
  int width;
};
template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) gated_rows_grads(GateGradArgs<T> g) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const std::int64_t row = std::int64_t{blockIdx.x} * g.width;
  const float share = sigmoid<T>(to_float(g.gate[blockIdx.x]));
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) * N; c < g.width; c += static_cast<int>(kRowThreads) * N) {
    float d[N];
    load_floats(d, g.dy + row + c);
    if (g.dgate.data) {
      float branch[N];
      load_floats(branch, g.b + row + c);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += d[i] * branch[i];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] *= share;
    if (g.db.data) g.db.template put_pack<N>(row + c, d);
  }
  if (!g.dgate.data) return;
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) g.dgate.put(blockIdx.x, share * (1.0f - share) * sum);
}

}  // namespace

void run_cuda(Ctx& ctx, const GatedRows& o) {
  dispatch_storage(o.y.dtype, [&]<class T>() {
    const GateArgs<T> args{.y = o.y.as<T>(),
                           .a = o.a.as<T>(),
                           .b = o.b.as<T>(),
                           .gate = o.gate.as<T>(),
                           .width = static_cast<int>(o.y.shape[-1])};
    dispatch_packs<T>(packable<T>(args.width, args.y, args.a, args.b), [&]<int N>() {
      launch(ctx, "gated_rows", add_gated_rows<N, T>, {static_cast<unsigned>(o.y.shape.rows()), kRowThreads}, args);
    });
  });
}

void run_cuda(Ctx& ctx, const GatedRowsGrad& o) {
  dispatch_storage(o.dy.dtype, [&]<class T>() {
    const GateGradArgs<T> args{.db = target_of<T>(o.db),
                               .dgate = target_of<T>(o.dgate),
                               .dy = o.dy.as<T>(),
                               .b = o.b.as<T>(),
                               .gate = o.gate.as<T>(),
                               .width = static_cast<int>(o.dy.shape[-1])};
    dispatch_packs<T>(packable<T>(args.width, args.db.data, args.dy, args.b), [&]<int N>() {
      launch(ctx, "gated_rows_grad", gated_rows_grads<N, T>,
             {static_cast<unsigned>(o.dy.shape.rows()), kRowThreads, sizeof(BlockPartials<float>)}, args);
    });
  });
}

}  // namespace qtrain::ops
