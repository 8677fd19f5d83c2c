#include "kernels/cuda/attention_softmax.cuh"

/// y = softmax(scale q k^T) v on the tensor cores of sm_90a, for heads of 64 and 128 elements. Each block processes 128
/// queries of one head, 64 in each of two warpgroups, and loops over tiles of keys. While the weights of one tile are
/// computed, the tensor cores multiply those of the previous tile by its values, and the next tile is copied.
namespace qtrain::ops {
namespace {

constexpr int kGroupThreads = 4 * kWarp, kGroupRows = 64, kGroups = 2;
constexpr int kThreads = kGroups * kGroupThreads, kQueries = kGroups * kGroupRows;
constexpr int kSwizzledBytes = 128, kSwizzledWidth = 64, kAtomRows = 8, kAtomBytes = kAtomRows * kSwizzledBytes;

/// Rows of Width 16-bit elements as wgmma reads them with 128-byte swizzle: blocks of 64 columns, in whose rows the
/// chunk of 16 bytes number c is at c ^ (row % 8).
template <class T, int Rows, int Width>
struct alignas(kAtomBytes) SwizzledTile {
  static constexpr int kBlocks = Width / kSwizzledWidth, kBlockBytes = Rows * kSwizzledBytes;
  T v[kBlocks][Rows][kSwizzledWidth];
};

/// Keys per tile: as many as leave room for two blocks on a multiprocessor, or as fit in registers.
template <int Width>
inline constexpr int kKeysOf = Width == 64 ? 64 : 128;
template <int Width>
inline constexpr int kBlocksOf = Width == 64 ? 2 : 1;

template <class T, int Width>
struct GroupsShared {
  SwizzledTile<T, kQueries, Width> q;
  SwizzledTile<T, kKeysOf<Width>, Width> k[2], v[2];
  int begin[kQueries];  ///< first key per query
};

/// Starts copying rows `first`, `first` + 1, ... to a tile. Rows out of range become zero.
template <class T, int Rows, int Width>
__device__ __forceinline__ void copy_rows(SwizzledTile<T, Rows, Width>& tile, const HeadRows<T>& from, int first) {
  constexpr int kAcross = kSwizzledWidth / kChunk, kStep = kThreads / kAcross;
  static_assert(Rows % kStep == 0 && kStep % kAtomRows == 0);
  const int chunk = static_cast<int>(threadIdx.x) % kAcross, row0 = static_cast<int>(threadIdx.x) / kAcross;
  const int place = (chunk ^ row0 % kAtomRows) * kChunk;
  const T* source = from.data + (first + row0) * from.stride + chunk * kChunk;
#pragma unroll
  for (int r = 0; r < Rows; r += kStep) {
    const bool there = first + row0 + r < from.end;
#pragma unroll
    for (int b = 0; b < tile.kBlocks; ++b)
      ptx::cp_async<16>(&tile.v[b][row0 + r][place], source + b * kSwizzledWidth, there ? 16 : 0);
    source += kStep * from.stride;
  }
}

/// A descriptor of a matrix in a tile, with bits as in the PTX manual, "Matrix Descriptor Format": the address, the
/// offsets from one block of 64 columns to the next and from 8 rows to the next, and the mode of 128-byte swizzle.
template <class T, int Rows, int Width>
__device__ __forceinline__ std::uint64_t descriptor_of(const SwizzledTile<T, Rows, Width>& tile) {
  constexpr std::uint64_t kMode = 1;
  return std::uint64_t{ptx::shared_address(&tile) >> 4} | std::uint64_t{tile.kBlockBytes >> 4} << 16 |
         std::uint64_t{kAtomBytes >> 4} << 32 | kMode << 62;
}
/// The descriptor of what lies `bytes` further on.
__device__ __forceinline__ std::uint64_t moved(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<unsigned>(bytes >> 4);
}

/// Starts scores = q k^T with the warpgroup's rows of a tile of queries.
template <class T, int Width, int Keys>
__device__ __forceinline__ void start_scores(float (&scores)[Keys / 8][4], const SwizzledTile<T, kQueries, Width>& q,
                                             const SwizzledTile<T, Keys, Width>& k) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const std::uint64_t rows = moved(descriptor_of(q), group * kGroupRows * kSwizzledBytes), keys = descriptor_of(k);
#pragma unroll
  for (int i = 0; i < Width / 16; ++i) {
    const int at = i % 4 * 32, block = i / 4;
    const std::uint64_t a = moved(rows, block * q.kBlockBytes + at), b = moved(keys, block * k.kBlockBytes + at);
    if (i == 0)
      ptx::wgmma<T, ptx::Major::k, ptx::Sum::starts>(scores, a, b);
    else
      ptx::wgmma<T, ptx::Major::k, ptx::Sum::adds>(scores, a, b);
  }
  ptx::wgmma_commit();
}

/// Starts out += p v.
template <class T, int Width, int Keys>
__device__ __forceinline__ void start_values(float (&out)[Width / 8][4], std::uint32_t (&p)[Keys / 16][4],
                                             const SwizzledTile<T, Keys, Width>& v) {
  const std::uint64_t values = descriptor_of(v);
#pragma unroll
  for (int i = 0; i < Keys / 16; ++i)
    ptx::wgmma<T, ptx::Major::mn, ptx::Sum::adds>(out, p[i], moved(values, i * 2 * kAtomBytes));
  ptx::wgmma_commit();
}

/// Waits until everything that has been copied can be multiplied.
__device__ __forceinline__ void wait_for_copies() {
  ptx::cp_async_wait<0>();
  ptx::fence_proxy_async();
  __syncthreads();
}

template <class T, int Width>
__global__ void __launch_bounds__(kThreads, kBlocksOf<Width>)
    attention_warpgroups(AttentionBatch n, AttentionTensors<T> x) {
  constexpr int kKeys = kKeysOf<Width>;
  auto& s = shared_memory<GroupsShared<T, Width>>();
  // The last tiles see the most keys, so they start first.
  const int head = static_cast<int>(blockIdx.x) % n.heads, group = n.group_of(head);
  const int first = n.queries.begin + (static_cast<int>(gridDim.x - 1 - blockIdx.x) / n.heads) * kQueries;
  const int row = warp_id() * 16, end = min(first + kQueries, n.queries.end);
  const HeadRows<T> q{x.q + n.query(0, head), std::int64_t{n.heads} * Width, n.queries.end, Width};
  const HeadRows<T> k{x.k + n.key(0, group), std::int64_t{n.groups} * Width, end, Width};
  HeadRows<T> v = k;
  v.data = x.v + n.key(0, group);
  const TokenSpan segment = n.segment(first);
  int key = n.first_key(first, segment), slot = 0;
  copy_rows(s.q, q, first);
  copy_rows(s.k[0], k, key);
  ptx::cp_async_commit();
  if (static_cast<int>(threadIdx.x) < kQueries) {
    const int t = first + static_cast<int>(threadIdx.x);
    s.begin[threadIdx.x] = t < n.queries.end ? n.first_key(t, t < segment.end ? segment : n.segment(t)) : t + 1;
  }
  wait_for_copies();

  float scores[1][kKeys / 8][4], out[1][Width / 8][4] = {}, fade[1][2];
  std::uint32_t p[1][kKeys / 16][4];
  RowSoftmax<1, kKeys> state{};
  state.row = first + row + lane_id() / 4;
  state.max[0][0] = state.max[0][1] = -INFINITY;
  const int* begin = s.begin + row + lane_id() / 4;
  const int warp_begin = s.begin[row + 15];
  const float scale = n.score_scale<Scores::plain>() * kLog2e;
  // Converts the scores of the tile at `key` to weights; returns whether `out` has to be multiplied by `fade`.
  const auto weigh = [&] {
    if (key + kKeys - 1 > first + row || key < warp_begin) state.mask(scores, key, begin);
    const bool fades = state.raise(scores, scale, fade);
    for (int h = 0; h < 2; ++h) state.sum[0][h] *= fade[0][h];
    state.weigh(scores, scale);
    return __any_sync(kAllLanes, fades);
  };

  ptx::wgmma_fence();
  start_scores(scores[0], s.q, s.k[0]);
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
    start_scores(scores[0], s.q, s.k[slot]);
    start_values<T, Width, kKeys>(out[0], p[0], s.v[slot ^ 1]);
    copy_rows(s.v[slot], v, key);
    if (key + kKeys < end) copy_rows(s.k[slot ^ 1], k, key + kKeys);
    ptx::cp_async_commit();
    ptx::wgmma_wait<1>();
    ptx::wgmma_settle(scores[0]);
    const bool fades = weigh();
    ptx::wgmma_wait<0>();
    ptx::wgmma_settle(out[0]);
    ptx::wgmma_settle(scores[0]);
    if (fades) scale_rows(out, fade);
    fragments_of<T>(p, scores);
  }
  wait_for_copies();
  ptx::wgmma_settle(out[0]);
  ptx::wgmma_settle(p[0]);
  ptx::wgmma_fence();
  start_values<T, Width, kKeys>(out[0], p[0], s.v[slot]);
  ptx::wgmma_wait<0>();
  ptx::wgmma_settle(out[0]);
  put_results<T, Scores::plain>(n, x, state.row, head, state, out);
}

}  // namespace

void attention_wgmma(Ctx& ctx, const Attention& a) {
  const AttentionBatch batch = batch_of(a);
  const auto run = [&]<class T, int Width>() {
    launch(ctx, "attention", attention_warpgroups<T, Width>,
           {static_cast<unsigned>(ceil_div(batch.rows(), kQueries) * batch.heads), kThreads,
            sizeof(GroupsShared<T, Width>)},
           batch, tensors_of<T>(a));
  };
  if (a.q.dtype == DType::bf16)
    batch.width == 64 ? run.operator()<Bf16, 64>() : run.operator()<Bf16, 128>();
  else
    batch.width == 64 ? run.operator()<F16, 64>() : run.operator()<F16, 128>();
}

}  // namespace qtrain::ops
