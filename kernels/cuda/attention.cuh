#pragma once
#include "kernels/attention.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/reduce.cuh"

/// Shared by the attention kernels. The implementations are in separate files: attention_plain.cu for any head size,
/// dtype and GPU; attention_*_mma.cu for tensor cores from sm_80 on; attention_*_wgmma.cu and
/// attention_forward_tma.cu for sm_90a.
namespace qtrain::ops {

inline constexpr int kMaxHead = 256;

/// Tokens [begin, end).
struct TokenSpan {
  int begin, end;
};

/// Whether scores are capped with tanh. A template parameter, since the kernels have no registers to spare.
enum class Scores : std::uint8_t { plain, capped };

/// Sizes of a batch, and which tokens see each other. Tokens outside all segments (padding at the end of a packed
/// batch) see nothing: their y, lse and gradients are zero. Token indices always refer to all tokens, even if only some
/// of them are queries.
struct AttentionBatch {
  const std::int32_t* cu;
  int segments, tokens, heads, groups, width, window;  ///< groups: key heads; width: elements per head
  TokenSpan queries;
  float scale, softcap;
  float tanh_scale;  ///< scale / softcap: capped scores are softcap * tanh(tanh_scale * q . k)

  /// Scores are score_scale * q . k, or if capped score_scale * tanh(tanh_scale * q . k).
  template <Scores S>
  __device__ __forceinline__ float score_scale() const {
    return S == Scores::capped ? softcap : scale;
  }
  __device__ TokenSpan segment(int t) const {
    int low = 0, high = segments;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (cu[middle] <= t ? low : high) = middle;
    }
    const TokenSpan span{cu[low], cu[low + 1]};
    return span.begin <= t && t < span.end ? span : TokenSpan{t + 1, t};
  }
  /// Token t of `segment` sees keys first_key to t; for a token outside all segments this is t + 1.
  __device__ int first_key(int t, TokenSpan segment) const {
    return window > 0 ? max(segment.begin, t + 1 - window) : segment.begin;
  }
  __device__ int first_key(int t) const { return first_key(t, segment(t)); }
  /// Queries j to last_query see key j of `segment`; for a key outside all segments this is j - 1.
  __device__ int last_query(int j, TokenSpan segment) const {
    return (window > 0 ? min(segment.end, j + window) : segment.end) - 1;
  }
  __device__ int last_query(int j) const { return last_query(j, segment(j)); }

  __host__ __device__ int rows() const { return queries.end - queries.begin; }
  /// Offsets of query t in q and y, and in lse and delta, which have a row per head.
  __device__ std::int64_t query(std::int64_t t, int head) const { return ((t - queries.begin) * heads + head) * width; }
  __device__ std::int64_t row(int head, int t) const { return std::int64_t{head} * rows() + t - queries.begin; }
  __device__ std::int64_t key(std::int64_t t, int group) const { return (t * groups + group) * width; }
  __device__ int group_of(int head) const { return head / (heads / groups); }
};

template <class Op>
AttentionBatch batch_of(const Op& a) {
  check(a.q.shape[2] <= kMaxHead, "attention: a head of more than 256 elements");
  check(a.cu_seqlens.numel() >= 2, "attention: cu_seqlens names no segment");
  return {.cu = a.cu_seqlens.template as<std::int32_t>(),
          .segments = static_cast<int>(a.cu_seqlens.numel() - 1),
          .tokens = static_cast<int>(a.k.shape[0]),
          .heads = static_cast<int>(a.q.shape[1]),
          .groups = static_cast<int>(a.k.shape[1]),
          .width = static_cast<int>(a.q.shape[2]),
          .window = static_cast<int>(a.window),
          .queries = {static_cast<int>(a.first_query), static_cast<int>(a.first_query + a.q.shape[0])},
          .scale = static_cast<float>(a.scale),
          .softcap = static_cast<float>(a.softcap),
          .tanh_scale = static_cast<float>(a.softcap > 0 ? a.scale / a.softcap : 0)};
}

/// Calls f.operator()<S>() according to the softcap; 0: none.
template <class F>
void dispatch_scores(double softcap, const F& f) {
  if (softcap > 0)
    f.template operator()<Scores::capped>();
  else
    f.template operator()<Scores::plain>();
}

template <class T>
struct AttentionTensors {
  T* y;
  float* lse;
  const T *q, *k, *v;
  const float* sinks;  ///< null without sinks
};
inline const float* sinks_of(const ConstTensor& sinks) {
  return sinks ? sinks.as<float>() : nullptr;
}
template <class T>
AttentionTensors<T> tensors_of(const Attention& a) {
  return {a.y.as<T>(), a.lse.as<float>(), a.q.as<T>(), a.k.as<T>(), a.v.as<T>(), sinks_of(a.sinks)};
}

/// The softmax of a row after all keys: its maximum score, the sum of e^(score - max), and the factor that the weighted
/// sum of values still has to be multiplied by.
struct RowEnd {
  float max, sum, factor = 1;

  /// A sink is one more score, whose value is zero.
  __device__ __forceinline__ void add_sink(float sink) {
    const float larger = fmaxf(max, sink);
    factor = expf(max - larger);
    sum = fmaf(sum, factor, expf(sink - larger));
    max = larger;
  }
  __device__ __forceinline__ float lse() const { return max + logf(sum); }
};

/// Queries in a tile of dq that several blocks add to.
inline constexpr int kSumQueries = 64;
struct KeyTile;
/// Sums of tiles of dq, to which the blocks of keys add in the order of the keys. `data` and `done` have the heads of a
/// pass.
struct OrderedSums {
  float* data = nullptr;       ///< [heads, rows, width of tiles]; null: another kernel computes dq
  int* done = nullptr;         ///< [heads, tiles]: 1 + the tile of keys that has been added last, or 0
  int* next = nullptr;         ///< number of the next block
  KeyTile* ordered = nullptr;  ///< tiles of keys in the order in which blocks take them (ordered_bytes)
  int rows = 0, tiles = 0;     ///< of queries: rows with those of the last tile, and numbers of tiles
  int key_tiles = 0;
};

/// delta [heads of the pass, queries] is in scratch memory, which is limited to 16 MiB: more heads take several passes.
template <class T>
struct GradientTensors {
  Target<T> dq, dk, dv;
  const T *dy, *y, *q, *k, *v;
  const float *lse, *delta;
  int first_group, pass_groups;
};
/// Apart from the others, whose kernels take more instructions if their parameters are larger.
template <class T>
struct SummedGradients : GradientTensors<T> {
  OrderedSums sums;
};

/// How many multiprocessors a device has.
struct Multiprocessors {
  explicit Multiprocessors(Device device) : count(cuda_info(device.index).multiprocessors) {}
  int count;
};

void attention_plain(Ctx& ctx, const Attention& a);
void attention_mma(Ctx& ctx, const Attention& a);
void attention_tma(Ctx& ctx, const Attention& a);
/// Computes the gradients of one pass.
template <class T>
void attention_grad_plain(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x);
template <class T>
void attention_grad_mma(Ctx& ctx, const AttentionBatch& batch, const SummedGradients<T>& x);
template <class T>
void attention_grad_wgmma(Ctx& ctx, const AttentionBatch& batch, const SummedGradients<T>& x);
template <class T>
void attention_dkdv_mma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x);
template <class T>
void attention_dkdv_wgmma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x);
template <class T>
void attention_dq_wgmma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x);
template <class T>
void attention_dq_mma(Ctx& ctx, const AttentionBatch& batch, const GradientTensors<T>& x);

}  // namespace qtrain::ops
