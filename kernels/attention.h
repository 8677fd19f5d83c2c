#pragma once
#include "kernels/dispatch.h"

namespace qtrain::ops {

/// Causal attention within segments of a ragged batch. q, y [T, Hq, D]; k, v [T, Hkv, D]; Hq is a multiple of Hkv, and
/// query head h reads key head h / (Hq/Hkv). cu_seqlens i32 [n+1]: segment s is tokens [cu[s], cu[s+1]); attention
/// never crosses segments. window > 0: token i sees keys j with i - j < window. lse [Hq, T]: log-sum-exp of the scaled
/// scores, f32 (f64 with f64 q). Never stores a T x T matrix: it processes blocks of keys with an online softmax, as
/// FlashAttention-2 (Dao 2023) does on a GPU. The score of a query and a key is scale * q . k; with softcap > 0 it is
/// softcap * tanh(scale * q . k / softcap) (Gemma 2), applied before mask and softmax. sinks [Hq] in lse's type
/// (optional) add one more score with a value of zero to each softmax of a head (gpt-oss); lse then includes it. The
/// queries may be a subset of the tokens: q and y [Tq, Hq, D] and lse [Hq, Tq] then cover tokens [first_query,
/// first_query + Tq) of the T tokens of k, v and cu_seqlens. On a CPU their results are bitwise the same as those of a
/// call with all queries.
struct Attention {
  Tensor y, lse;
  ConstTensor q, k, v, cu_seqlens;
  std::int64_t window = 0;
  double scale;
  double softcap = 0;
  ConstTensor sinks = {};
  std::int64_t first_query = 0;
};
/// Gradients of Attention, with the same window, scale and softcap: a capped score's gradient is multiplied by 1 -
/// tanh^2. Sinks enter through y and lse. Deterministic: each output element has one writer and a fixed order of
/// summation. If the queries are a subset of the tokens, dk and dv get the contributions of these queries only; rows
/// that no query sees may be left unwritten. `memory` (optional, of any type) is overwritten. GPUs with tensor
/// cores compute five GEMMs instead of seven if it has attention_sum_bytes for the query heads of a key head (with
/// more, for more heads at a time), all three gradients are wanted, heads have at most 128 elements, and there is no
/// softcap.
struct AttentionGrad {
  Sink dq, dk, dv;
  ConstTensor dy, y, q, k, v, lse, cu_seqlens;
  std::int64_t window = 0;
  double scale;
  double softcap = 0;
  std::int64_t first_query = 0;
  Tensor memory = {};
};
/// Bytes for the sums of a query head's dq, for the `memory` of AttentionGrad. A tile of 64 queries may begin at the
/// last one.
inline std::size_t attention_sum_bytes(std::int64_t queries, std::int64_t width) {
  const std::int64_t columns = width <= 64 ? 64 : width <= 96 ? 96 : 128;
  return static_cast<std::size_t>((queries + 63) * columns) * sizeof(float);
}
/// The gradient of the sinks: dsinks[h] (+)= -sum over t of exp(sinks[h] - lse[h, t]) * (dy[t, h] . y[t, h]), with y
/// and lse of an Attention that had them. dsinks in lse's type.
struct AttentionSinkGrad {
  Sink dsinks;
  ConstTensor dy, y, lse, sinks;
};
/// Attention against a key/value cache (generation). q, y [T, Hq, D]; keys, values [rows, capacity, Hkv, D]; token t
/// belongs to cache row rows[t] (i32 [T]) and sees keys 0..positions[t] there (i32 [T]), fewer with a window. With a
/// table `blocks` (i32 [rows, n]) the cache is paged as in vLLM (Kwon et al. 2023): keys and values are [blocks,
/// capacity, Hkv, D], and position p of row r is entry p % capacity of block blocks[r, p / capacity]. On a CPU a paged
/// cache gives bitwise the same results as a contiguous one. Softcap and sinks as in Attention.
struct CachedAttention {
  Tensor y;
  ConstTensor q, keys, values, rows, positions;
  ConstTensor blocks = {};
  std::int64_t window = 0;
  double scale;
  double softcap = 0;
  ConstTensor sinks = {};
};
/// cache[rows[t], positions[t]] = x[t]; x [T, Hkv, D], cache [rows, capacity, Hkv, D], or paged by `blocks` as in
/// CachedAttention.
struct CacheAppend {
  Tensor cache;
  ConstTensor x, rows, positions;
  ConstTensor blocks = {};
};
void run_cpu(Ctx&, const Attention&);
void run_cuda(Ctx&, const Attention&);
void run_cpu(Ctx&, const AttentionGrad&);
void run_cuda(Ctx&, const AttentionGrad&);
void run_cpu(Ctx&, const AttentionSinkGrad&);
void run_cuda(Ctx&, const AttentionSinkGrad&);
void run_cpu(Ctx&, const CachedAttention&);
void run_cuda(Ctx&, const CachedAttention&);
void run_cpu(Ctx&, const CacheAppend&);
void run_cuda(Ctx&, const CacheAppend&);

/// The queries are those of all tokens, or of a contiguous range of them.
inline void check_queries(ConstTensor q, ConstTensor k, std::int64_t first_query) {
  check(first_query >= 0 && first_query + q.shape[0] <= k.shape[0] && q.shape[2] == k.shape[2],
        "attention: q and k differ in T or D");
}
inline void attention(Ctx& ctx, const Attention& a) {
  check(a.q.shape.rank == 3 && a.k.shape == a.v.shape && a.y.shape == a.q.shape, "attention: tensors are [T, H, D]");
  check_queries(a.q, a.k, a.first_query);
  check(a.q.shape[1] % a.k.shape[1] == 0, "attention: query heads must be a multiple of key heads");
  check(a.softcap >= 0, "attention: a softcap is positive, or 0 for none");
  check(!a.sinks || a.sinks.numel() == a.q.shape[1], "attention: one sink for each query head");
  dispatch(ctx, a);
}
inline void attention_grad(Ctx& ctx, const AttentionGrad& a) {
  check_queries(a.q, a.k, a.first_query);
  dispatch(ctx, a);
}
inline void attention_sink_grad(Ctx& ctx, const AttentionSinkGrad& a) {
  if (!a.dsinks.wanted()) return;
  check(a.dy.shape.rank == 3 && a.dy.shape == a.y.shape && a.lse.numel() == a.dy.shape[0] * a.dy.shape[1],
        "attention_sink_grad: dy and y are [T, H, D], lse [H, T]");
  check(a.sinks.numel() == a.dy.shape[1] && a.dsinks.t.numel() == a.sinks.numel(),
        "attention_sink_grad: one sink for each query head");
  dispatch(ctx, a);
}
inline void cached_attention(Ctx& ctx, const CachedAttention& a) {
  check(a.q.shape.rank == 3 && a.keys.shape.rank == 4 && a.q.shape[1] % a.keys.shape[2] == 0,
        "cached_attention: q is [T, Hq, D], keys [rows, capacity, Hkv, D]");
  check(!a.sinks || a.sinks.numel() == a.q.shape[1], "cached_attention: one sink for each query head");
  check(!a.blocks || a.blocks.shape.rank == 2, "cached_attention: the table of blocks is [rows, n]");
  dispatch(ctx, a);
}
inline void cache_append(Ctx& ctx, const CacheAppend& a) {
  check(!a.blocks || a.blocks.shape.rank == 2, "cache_append: the table of blocks is [rows, n]");
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
