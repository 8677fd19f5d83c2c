#include "model/stages/attention.h"

#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "model/stages/heads.h"

namespace qtrain::stages {
namespace {

struct Results {
  TensorId y, lse;
};

class AttentionStage final : public Stage {
 public:
  AttentionStage(const Attention& o, Results out) : o_(o), out_(out) {
    name = "attention";
    reads = {o.q, o.k, o.v};
    writes = {out.y, out.lse};
    adjoint_reads = reads | writes;
  }
  bool trains(const LayerWeights& w) const override { return w[o_.sinks].grad.wanted(); }
  void forward(LayerRun& r) const override {
    if (r.tokens.key_cache) return extend_cache(r);
    const Keys keys = keys_of(r);
    for (const Piece& piece : pieces(r))
      ops::attention(r.ctx, {.y = piece.of(heads(r.value(out_.y))),
                             .lse = piece.of_lse(r.value(out_.lse)),
                             .q = piece.of(heads(r.value(o_.q))),
                             .k = keys.k,
                             .v = keys.v,
                             .cu_seqlens = r.tokens.cu_seqlens,
                             .window = o_.window,
                             .scale = o_.scale,
                             .softcap = o_.softcap,
                             .sinks = r.w[o_.sinks].weight,
                             .first_query = piece.first});
  }
  void backward(LayerRun& r) const override {
    check(!r.tokens.key_cache, "generation has no backward pass");
    const Keys keys = keys_of(r);
    const Sink dq = wanted(r, o_.q), dk = wanted(r, o_.k), dv = wanted(r, o_.v);
    const SharedKeys* shared = r.tokens.shared;
    if (!shared) return differentiate(r, keys, {dq, dk, dv});
    // Those of keys and values come from the queries of all ranks.
    const Tensor dk_all = of_all(*shared, shared->d_keys, dk.t), dv_all = of_all(*shared, shared->d_values, dv.t);
    for (const Tensor& t : {dk_all, dv_all}) ops::fill(r.ctx, {.y = t, .value = 0});
    differentiate(r, keys, {dq, accumulate(dk_all), accumulate(dv_all)});
    shared->exchange->reduce(r.ctx, dk_all, keys.k, dk);
    shared->exchange->reduce(r.ctx, dv_all, keys.v, dv);
  }

 private:
  Tensor heads(const Tensor& t) const { return as_heads(t, o_.head_dim); }

  void extend_cache(LayerRun& r) const {
    const TokenContext& t = r.tokens;
    const auto append = [&](const Tensor& cache, TensorId x) {
      ops::cache_append(r.ctx,
                        {.cache = cache, .x = heads(r.value(x)), .rows = t.cache_rows, .positions = t.positions});
    };
    append(t.key_cache, o_.k);
    append(t.value_cache, o_.v);
    ops::cached_attention(r.ctx, {.y = heads(r.value(out_.y)),
                                  .q = heads(r.value(o_.q)),
                                  .keys = t.key_cache,
                                  .values = t.value_cache,
                                  .rows = t.cache_rows,
                                  .positions = t.positions,
                                  .window = o_.window,
                                  .scale = o_.scale,
                                  .softcap = o_.softcap,
                                  .sinks = r.w[o_.sinks].weight});
  }

  Sink wanted(LayerRun& r, TensorId t) const {
    const Sink s = r.grad(t);
    return {heads(s.t), s.mode};
  }

  /// Tokens of this rank in a row: those of its rows [begin, begin + count), and the first of them among all.
  struct Piece {
    std::int64_t begin, count, first;

    Tensor of(const Tensor& t) const { return t.slice(begin, count); }
    Sink of(const Sink& s) const { return {of(s.t), s.mode}; }
    /// lse has one piece [H, count] after the other.
    Tensor of_lse(const Tensor& lse) const {
      const std::int64_t H = lse.shape[0];
      return lse.reshaped({lse.numel()}).slice(begin * H, count * H).reshaped({H, count});
    }
  };
  std::vector<Piece> pieces(const LayerRun& r) const {
    const std::int64_t tokens = r.value(o_.q).shape[0];
    if (!r.tokens.shared) return {{0, tokens, 0}};
    std::vector<Piece> all;
    const std::int64_t count = tokens / ContextShare::kPieces;
    for (int i = 0; i < ContextShare::kPieces; ++i)
      all.push_back({i * count, count, r.tokens.shared->share.piece(i) * count});
    return all;
  }

  /// Keys and values that queries may see: those of all tokens.
  struct Keys {
    Tensor k, v;
  };
  Keys keys_of(LayerRun& r) const {
    const Keys own{heads(r.value(o_.k)), heads(r.value(o_.v))};
    const SharedKeys* shared = r.tokens.shared;
    if (!shared) return own;
    const Keys all{of_all(*shared, shared->keys, own.k), of_all(*shared, shared->values, own.v)};
    shared->exchange->gather(r.ctx, own.k, all.k);
    shared->exchange->gather(r.ctx, own.v, all.v);
    return all;
  }
  /// The memory for rows like those of x, of all ranks.
  static Tensor of_all(const SharedKeys& shared, const Tensor& memory, const Tensor& x) {
    const Shape shape{x.shape[0] * shared.share.ranks, x.shape[1], x.shape[2]};
    return memory.slice(0, shape.numel()).reshaped(shape);
  }

  struct Gradients {
    Sink dq, dk, dv;
  };
  void differentiate(LayerRun& r, const Keys& keys, const Gradients& to) const {
    const Tensor y = heads(r.value(out_.y)), dy = heads(r.gradient(out_.y)), q = heads(r.value(o_.q));
    const NormWeight& sinks = r.w[o_.sinks];
    for (const Piece& piece : pieces(r)) {
      const Tensor lse = piece.of_lse(r.value(out_.lse));
      ops::attention_grad(r.ctx, {.dq = piece.of(to.dq),
                                  .dk = to.dk,
                                  .dv = to.dv,
                                  .dy = piece.of(dy),
                                  .y = piece.of(y),
                                  .q = piece.of(q),
                                  .k = keys.k,
                                  .v = keys.v,
                                  .lse = lse,
                                  .cu_seqlens = r.tokens.cu_seqlens,
                                  .window = o_.window,
                                  .scale = o_.scale,
                                  .softcap = o_.softcap,
                                  .first_query = piece.first});
      ops::attention_sink_grad(
          r.ctx, {.dsinks = sinks.grad, .dy = piece.of(dy), .y = piece.of(y), .lse = lse, .sinks = sinks.weight});
    }
  }

  Attention o_;
  Results out_;
};

}  // namespace

TensorId attention(LayerBuilder& b, Attention a) {
  const std::int64_t width = b.width(a.q);
  const TensorId y = b.tensor({.name = "attention", .shape = {kTokens, {.fixed = width}}});
  const TensorId lse = b.tensor({.name = "attention.lse",
                                 .shape = {{.fixed = width / a.head_dim}, kTokens},
                                 .precision = Precision::full,
                                 .gradient = HasGradient::no});
  b.set_key_value({.heads = b.width(a.k) / a.head_dim, .head_dim = a.head_dim});
  b.stage(std::make_unique<AttentionStage>(a, Results{y, lse}));
  return y;
}

}  // namespace qtrain::stages
