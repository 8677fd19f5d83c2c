#include "kernels/attention.h"
#include "kernels/cuda/column_parts.cuh"
#include "kernels/cuda/reduce.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kWarps = 8;

template <class T>
struct Args {
  const T *dy, *y;
  const float *lse, *sinks;
  ColumnParts parts;  ///< of width `heads`
  int tokens, heads, width;
};

/// Block (part, head) sums over the tokens part, part + parts, ..., with one warp per token.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp) sink_grad_part(Args<T> a) {
  auto& partials = shared_memory<BlockPartials<float>>();
  const int head = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % kWarp;
  const float sink = a.sinks[head];
  float sum = 0;
  for (std::int64_t t = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; t < a.tokens;
       t += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t row = (t * a.heads + head) * a.width;
    const float weight = expf(sink - a.lse[std::int64_t{head} * a.tokens + t]);
    float dot = 0;
    for (int d = lane; d < a.width; d += kWarp) dot += to_float(a.dy[row + d]) * to_float(a.y[row + d]);
    sum -= weight * dot;
  }
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) a.parts.data[std::int64_t{blockIdx.x} * a.heads + head] = sum;
}

}  // namespace

void run_cuda(Ctx& ctx, const AttentionSinkGrad& a) {
  dispatch_storage(a.dy.dtype, [&]<class T>() {
    const std::int64_t tokens = a.dy.shape[0], heads = a.dy.shape[1];
    const Args<T> args{
        .dy = a.dy.as<T>(),
        .y = a.y.as<T>(),
        .lse = a.lse.as<float>(),
        .sinks = a.sinks.as<float>(),
        .parts = column_parts(ctx, ceil_div(tokens, std::int64_t{kWarps}),
                              {.width = heads, .threads = static_cast<unsigned>(heads) * kWarps * kWarp}),
        .tokens = static_cast<int>(tokens),
        .heads = static_cast<int>(heads),
        .width = static_cast<int>(a.dy.shape[2])};
    const dim3 blocks(static_cast<unsigned>(args.parts.parts), static_cast<unsigned>(heads));
    launch(ctx, "attention_sink_grad", sink_grad_part<T>, {blocks, kWarps * kWarp, sizeof(BlockPartials<float>)}, args);
    finish_column_parts(ctx, a.dsinks, args.parts);
  });
}

}  // namespace qtrain::ops
