#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/attention_wgmma.cuh"

/// y = softmax(scale q k^T) v on the tensor cores of sm_90a, for heads of 64 elements. Each block processes 128
/// queries of one head, 64 in each of two warpgroups, and loops over tiles of keys. While the weights of one tile are
/// computed, the tensor cores multiply those of the previous tile by its values, and the next tile is copied.
namespace qtrain::ops {
namespace {

/// Keys per tile: as many as fit with two blocks per multiprocessor.
inline constexpr int kKeys = 64, kBlocks = 2;

template <class T, int Width>
struct GroupsShared {
  SwizzledTile<T, kBlockRows, Width> q;
  SwizzledTile<T, kKeys, Width> k[2], v[2];
  int begin[kBlockRows];  ///< first key per query
};

template <class T, int Width>
__global__ void __launch_bounds__(kBlockThreads, kBlocks)
    attention_warpgroups(AttentionBatch n, AttentionTensors<T> x) {
  auto& s = shared_memory<GroupsShared<T, Width>>();
  // The last tiles see the most keys, so they start first.
  const int head = static_cast<int>(blockIdx.x) % n.heads, group = n.group_of(head);
  const int first = n.queries.begin + (static_cast<int>(gridDim.x - 1 - blockIdx.x) / n.heads) * kBlockRows;
  const int row = warp_id() * 16, end = min(first + kBlockRows, n.queries.end);
  const HeadRows<T> q{x.q + n.query(0, head), std::int64_t{n.heads} * Width, n.queries.end, Width};
  const HeadRows<T> k{x.k + n.key(0, group), std::int64_t{n.groups} * Width, end, Width};
  HeadRows<T> v = k;
  v.data = x.v + n.key(0, group);
  const TokenSpan segment = n.segment(first);
  int key = n.first_key(first, segment), slot = 0;
  copy_rows(s.q, q, first);
  copy_rows(s.k[0], k, key);
  ptx::cp_async_commit();
  if (static_cast<int>(threadIdx.x) < kBlockRows) {
    const int t = first + static_cast<int>(threadIdx.x);
    s.begin[threadIdx.x] = t < n.queries.end ? n.first_key(t, t < segment.end ? segment : n.segment(t)) : t + 1;
  }
  wait_for_copies();

  float scores[1][kKeys / 8][4], out[1][Width / 8][4] = {}, fade[1][2];
  std::uint32_t p[1][kKeys / 16][4];
  RowSoftmax<1, kKeys> state{};
  const int lane_row = first + row + lane_id() / 4;
  state.max[0][0] = state.max[0][1] = -INFINITY;
  const int* begin = s.begin + row + lane_id() / 4;
  const int warp_begin = s.begin[row + 15];
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  // Converts the scores of the tile at `key` to weights; returns whether `out` has to be multiplied by `fade`.
  const auto weigh = [&] {
    if (key + kKeys - 1 > first + row || key < warp_begin) mask_keys(scores, begin, lane_row, key);
    const bool fades = state.raise(scores, scale, fade);
    for (int h = 0; h < 2; ++h) state.sum[0][h] *= fade[0][h];
    state.weigh(scores, scale);
    return __any_sync(kAllLanes, fades);
  };

  ptx::wgmma_fence();
  start_rows(scores[0], s.q, s.k[0]);
  copy_rows(s.v[0], v, key);
  if (key + kKeys < end) copy_rows(s.k[1], k, key + kKeys);
  ptx::cp_async_commit();
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(scores[0]);
  weigh();
  fragments_of<T>(p, scores);
  for (key += kKeys; key < end; key += kKeys) {
    wait_for_copies();
    slot ^= 1;
    ptx::wgmma_settle(scores[0]);
    ptx::wgmma_settle(out[0]);
    ptx::wgmma_settle(p[0]);
    ptx::wgmma_fence();
    start_rows(scores[0], s.q, s.k[slot]);
    start_columns(out[0], p[0], s.v[slot ^ 1]);
    copy_rows(s.v[slot], v, key);
    if (key + kKeys < end) copy_rows(s.k[slot ^ 1], k, key + kKeys);
    ptx::cp_async_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(scores[0]);
    if (weigh()) {  // this branch also keeps the assembler from waiting before it computes weights
      ptx::wgmma_wait<0>();
      ptx::wgmma_settle(out[0]);
      scale_rows(out, fade);
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(out[0]);
    ptx::wgmma_settle(scores[0]);
    fragments_of<T>(p, scores);
  }
  wait_for_copies();
  ptx::wgmma_settle(out[0]);
  ptx::wgmma_settle(p[0]);
  ptx::wgmma_fence();
  start_columns(out[0], p[0], s.v[slot]);
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(out[0]);
  put_results<T, Scores::plain>(n, x, lane_row, head, state, out);
}

}  // namespace

void attention_wgmma(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  const auto run = [&]<class T, int Width>() {
    launch(ctx, "attention", attention_warpgroups<T, Width>,
           {static_cast<unsigned>(ceil_div(batch.rows(), kBlockRows) * batch.heads), kBlockThreads,
            sizeof(GroupsShared<T, Width>)},
           batch, tensors_of<T>(a));
  };
  if (a.q.dtype == DType::bf16)
    run.operator()<Bf16, 64>();
  else
    run.operator()<F16, 64>();
}

}  // namespace qtrain::ops
