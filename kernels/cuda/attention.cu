#include "kernels/cuda/attention_turns.cuh"

#include <target/warpgroups.h>

#include <climits>

/// Selects the kernels, and computes what all gradients need first.
namespace qtrain::ops {
namespace {

enum class Units : std::uint8_t { plain, mma, wgmma };

/// The best units of a device: tensor cores require instructions of compute capability 8.0.
struct DeviceUnits {
  explicit DeviceUnits(Device device)
      : best(target::has_warpgroups(device)       ? Units::wgmma
             : cuda_info(device.index).major >= 8 ? Units::mma
                                                  : Units::plain) {}
  Units best;
};

/// Tensor-core kernels read 16-bit elements in chunks of 16 bytes. Their softmax takes the maximum before scaling, so
/// the scale must be positive. Kernels for warpgroups exist only for common head widths, without a softcap.
template <class T, class... P>
Units units_for(Ctx& ctx, const AttentionBatch& batch, const P*... pointers) {
  if (sizeof(T) != 2 || batch.scale <= 0 || packable<T>(batch.width, pointers...) == Packs::no) return Units::plain;
  const Units best = ctx.kept<DeviceUnits>().best;
  const bool for_warpgroups = (batch.width == 64 || batch.width == 128) && batch.softcap == 0;
  return best == Units::wgmma && !for_warpgroups ? Units::mma : best;
}

/// delta[head, t] = dy . y of a query and head, with 8 lanes each. Also prepares the sums of dq: no block has added to
/// them, the first block, which takes longest, orders the tiles of keys, and queries outside all segments have a
/// gradient of zero.
template <class T>
struct Delta {
  float* delta;
  const T *dy, *y;
  AttentionBatch batch;
  int first_head, pass_heads;
  OrderedSums sums;
  Target<T> dq;
};
constexpr int kDeltaThreads = 256, kRowLanes = 8;

template <int N, class T>
__global__ void __launch_bounds__(kDeltaThreads) attention_delta(Delta<T> a) {
  if constexpr (sizeof(T) == 2)  // others have no sums
    if (a.sums.data && blockIdx.x == 0) return order_tiles(a.batch, a.sums.ordered, a.sums.key_tiles);
  const int block = static_cast<int>(blockIdx.x) - (a.sums.data ? 1 : 0);
  const std::int64_t row = (std::int64_t{block} * kDeltaThreads + threadIdx.x) / kRowLanes;
  const std::int64_t t = a.batch.queries.begin + row / a.pass_heads;
  const int head = static_cast<int>(row % a.pass_heads), lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int thread = block * kDeltaThreads + static_cast<int>(threadIdx.x);
  if (a.sums.data)
    for (int i = thread; i < a.pass_heads * a.sums.tiles; i += static_cast<int>(gridDim.x - 1) * kDeltaThreads)
      a.sums.done[i] = 0;
  if (a.sums.data && thread == 0) *a.sums.next = 0;
  float sum = 0;
  if (t < a.batch.queries.end) {
    const bool outside = a.sums.data && t >= a.batch.cu[a.batch.segments];
    const std::int64_t at = a.batch.query(t, a.first_head + head);
    for (int d = lane * N; d < a.batch.width; d += kRowLanes * N) {
      const Pack<T, N> dy = load_pack<N>(a.dy + at + d), y = load_pack<N>(a.y + at + d);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += to_float(dy.v[i]) * to_float(y.v[i]);
      constexpr float kZeros[N] = {};
      if (outside) a.dq.put_pack(at + d, kZeros);
    }
  }
#pragma unroll
  for (int bit = kRowLanes / 2; bit > 0; bit /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bit);
  if (t < a.batch.queries.end && lane == 0) a.delta[a.batch.row(head, static_cast<int>(t))] = sum;
}

template <class T>
void run_delta(Ctx& ctx, const Delta<T>& a, Packs packs) {
  const std::int64_t threads = std::int64_t{a.batch.rows()} * a.pass_heads * kRowLanes;
  const auto blocks = static_cast<unsigned>(ceil_div(threads, std::int64_t{kDeltaThreads}) + (a.sums.data ? 1 : 0));
  dispatch_packs<T>(packs, [&]<int N>() {
    launch(ctx, "attention_delta", attention_delta<N, T>, {blocks, kDeltaThreads}, a);
  });
}

template <class T>
GradientTensors<T> tensors_of(const AttentionGrad& a) {
  return {.dq = target_of<T>(a.dq),
          .dk = target_of<T>(a.dk),
          .dv = target_of<T>(a.dv),
          .dy = a.dy.as<T>(),
          .y = a.y.as<T>(),
          .q = a.q.as<T>(),
          .k = a.k.as<T>(),
          .v = a.v.as<T>(),
          .lse = a.lse.as<float>()};
}

template <class T>
void run_pass(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x) {
  if constexpr (sizeof(T) == 2) {
    const Units units = units_for<T>(ctx, batch, x.q, x.k, x.v, x.y, x.dy, x.dq.data, x.dk.data, x.dv.data);
    if (units == Units::wgmma) {
      if (x.dk.data || x.dv.data) attention_dkdv_wgmma(ctx, batch, x);
      if (x.dq.data) attention_dq_wgmma(ctx, batch, x);
      return;
    }
    if (units == Units::mma) {
      if (x.dk.data || x.dv.data) attention_dkdv_mma(ctx, batch, x);
      if (x.dq.data) attention_dq_mma(ctx, batch, x);
      return;
    }
  }
  attention_grad_plain(ctx, batch, x);
}

/// Key heads per pass, as far as scratch memory has room for delta and `memory` for the sums of dq.
struct Passes {
  int groups;
  Units together = Units::plain;  ///< of the kernel that computes dq, dk and dv together; plain: there is none
};
template <class T>
Passes passes_of(Ctx& ctx, const AttentionGrad& a, const AttentionBatch& batch, const GradientTensors<T>& x) {
  const auto share = static_cast<std::size_t>(batch.heads / batch.groups);
  const std::size_t rows = static_cast<std::size_t>(batch.rows()) * share * 4, scratch = Ctx::kScratchBytes - 256;
  const auto of = [&](std::size_t memory, std::size_t bytes) {
    return static_cast<int>(std::min<std::size_t>(memory / std::max<std::size_t>(bytes, 1), INT_MAX));
  };
  const int most = of(scratch, rows);
  check(most > 0, "attention: scratch memory is too small for the sums of all tokens of a batch");
  const Units units = units_for<T>(ctx, batch, x.q, x.k, x.v, x.y, x.dy, x.dq.data, x.dk.data, x.dv.data);
  if (!a.memory || !x.dq.data || !x.dk.data || !x.dv.data || batch.softcap > 0 || batch.width > 128 ||
      batch.rows() == 0 || units == Units::plain)
    return {most};
  const std::size_t flags = share * static_cast<std::size_t>(sum_tiles(batch)) * 4;
  const std::size_t ordered = ordered_bytes(key_tiles(batch));
  if (ordered >= scratch) return {most};
  const int groups = std::min(of(scratch - ordered, rows + flags),
                              of(a.memory.bytes(), share * attention_sum_bytes(batch.rows(), batch.width)));
  return groups > 0 ? Passes{groups, units} : Passes{most};
}

}  // namespace

void run_cuda(Ctx& ctx, const Attention& a) {
  dispatch_storage(a.q.dtype, [&]<class T>() {
    const AttentionTensors<T> x = tensors_of<T>(a);
    const AttentionBatch batch = batch_of(a);
    const Units units = units_for<T>(ctx, batch, x.q, x.k, x.v, x.y);
    if (units == Units::wgmma)
      attention_tma(ctx, a);
    else if (units == Units::mma)
      attention_mma(ctx, a);
    else
      attention_plain(ctx, a);
  });
}

void run_cuda(Ctx& ctx, const AttentionGrad& a) {
  if (!a.dq.wanted() && !a.dk.wanted() && !a.dv.wanted()) return;
  const AttentionBatch batch = batch_of(a);
  const int share = batch.heads / batch.groups;
  dispatch_storage(a.q.dtype, [&]<class T>() {
    GradientTensors<T> x = tensors_of<T>(a);
    const Passes passes = passes_of(ctx, a, batch, x);
    for (int group = 0; group < batch.groups; group += passes.groups) {
      x.first_group = group;
      x.pass_groups = std::min(passes.groups, batch.groups - group);
      const bool together = passes.together != Units::plain;
      const int heads = x.pass_groups * share, tiles = together ? sum_tiles(batch) : 0;
      const std::size_t rows = static_cast<std::size_t>(batch.rows()) * static_cast<std::size_t>(heads),
                        flags = static_cast<std::size_t>(tiles) * static_cast<std::size_t>(heads);
      const std::size_t ordered = together ? ordered_bytes(key_tiles(batch)) : 0;
      auto* delta = reinterpret_cast<float*>(ctx.scratch((rows + flags + 1) * 4 + ordered));
      int* done = reinterpret_cast<int*>(delta + rows);
      OrderedSums sums;
      if (together)
        sums = {.data = reinterpret_cast<float*>(a.memory.data),
                .done = done,
                .next = done + flags,
                .ordered = reinterpret_cast<KeyTile*>(done + flags + 1),
                .rows = batch.rows() + kSumQueries - 1,
                .tiles = tiles,
                .key_tiles = key_tiles(batch)};
      run_delta(ctx, Delta<T>{delta, x.dy, x.y, batch, group * share, heads, sums, x.dq},
                packable<T>(batch.width, x.dy, x.y));
      x.delta = delta;
      if constexpr (sizeof(T) == 2)
        if (together) {
          const SummedGradients<T> summed{x, sums};
          passes.together == Units::wgmma ? attention_grad_wgmma(ctx, batch, summed)
                                          : attention_grad_mma(ctx, batch, summed);
          continue;
        }
      run_pass(ctx, batch, x);
    }
  });
}

}  // namespace qtrain::ops
