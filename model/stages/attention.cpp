#include "model/stages/attention.h"

#include <vector>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/head_copy.h"
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
    const Tensor q = heads(r.value(o_.q)), y = heads(r.value(out_.y)), k = heads(r.value(o_.k)),
                 v = heads(r.value(o_.v));
    if (!r.tokens.shared) return attend(r, {k, v}, {.q = q, .y = y});
    SharedHeads keys(r.ctx, *r.tokens.shared, k, v);
    for (std::int64_t i = 0; i < keys.parts(); ++i) {
      const SharedHeads::Part part = keys.take(i);
      if (keys.has_all_at_once()) return attend(r, {part.k, part.v}, {.q = q, .y = y});
      const Queries some = queries_of(r, part, q);
      copy_out(r.ctx, some, q, some.q);
      attend(r, {part.k, part.v}, some);
      copy_back(r.ctx, some, some.y, store(y));
    }
  }
  void backward(LayerRun& r) const override {
    check(!r.tokens.key_cache, "generation has no backward pass");
    const Sink dq = wanted(r, o_.q), dk = wanted(r, o_.k), dv = wanted(r, o_.v);
    const Tensor k = heads(r.value(o_.k)), v = heads(r.value(o_.v));
    const Queries all{
        .q = heads(r.value(o_.q)), .y = heads(r.value(out_.y)), .dy = heads(r.gradient(out_.y)), .dq = dq};
    if (r.tokens.shared)
      differentiate_shared(r, all, {dk, dv});
    else
      differentiate(r, {k, v}, all, {dk, dv});
    differentiate_sinks(r);
  }

 private:
  Tensor heads(const Tensor& t) const { return as_heads(t, o_.head_dim); }

  void extend_cache(LayerRun& r) const {
    const TokenContext& t = r.tokens;
    const auto append = [&](const Tensor& cache, TensorId x) {
      ops::cache_append(r.ctx, {.cache = cache,
                                .x = heads(r.value(x)),
                                .rows = t.cache_rows,
                                .positions = t.positions,
                                .blocks = t.cache_blocks});
    };
    append(t.key_cache, o_.k);
    append(t.value_cache, o_.v);
    ops::cached_attention(r.ctx, {.y = heads(r.value(out_.y)),
                                  .q = heads(r.value(o_.q)),
                                  .keys = t.key_cache,
                                  .values = t.value_cache,
                                  .rows = t.cache_rows,
                                  .positions = t.positions,
                                  .blocks = t.cache_blocks,
                                  .window = o_.window,
                                  .scale = o_.scale,
                                  .softcap = o_.softcap,
                                  .sinks = r.w[o_.sinks].weight});
  }

  Sink wanted(LayerRun& r, TensorId t) const {
    const Sink s = r.grad(t);
    return {heads(s.t), s.mode};
  }

  /// Consecutive tokens of this rank: its rows [begin, begin + count), and the index of the first among all ranks'
  /// tokens.
  struct Piece {
    std::int64_t begin, count, first;

    Tensor of(const Tensor& t) const { return t.slice(begin, count); }
    Sink of(const Sink& s) const { return {of(s.t), s.mode}; }
    /// lse is stored piece by piece, each [H, count].
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

  /// Keys and values of all ranks' tokens, for some heads.
  struct Keys {
    Tensor k, v;
  };
  struct KeyGradients {
    Sink dk, dv;
  };
  /// This rank's queries [T, H, D] for those key heads: query heads `first` and following.
  struct Queries {
    Tensor q, y, dy = {};
    Sink dq = {};
    std::int64_t first = 0;

    std::int64_t heads() const { return q.shape[1]; }
    /// Their heads' rows of a tensor with all heads.
    Tensor rows(const Tensor& all) const { return all.slice(first, heads()); }
    ConstTensor rows(ConstTensor all) const { return all ? all.slice(first, heads()) : all; }
  };

  /// The queries of a part's key heads, in buffers that `copy_out` fills and `copy_back` takes results from.
  Queries queries_of(LayerRun& r, const SharedHeads::Part& part, const Tensor& q) const {
    const KeyBuffers& memory = r.tokens.shared->buffers;
    const std::int64_t group = q.shape[1] / heads(r.value(o_.k)).shape[1];
    const Shape shape{q.shape[0], part.count * group, q.shape[2]};
    return {.q = part_of(memory.q, shape), .y = part_of(memory.y, shape), .first = part.first * group};
  }
  static void copy_out(Ctx& ctx, const Queries& of, const Tensor& all, const Tensor& some) {
    ops::copy_heads(ctx, {.y = store(some), .x = all, .x_first = of.first, .count = of.heads()});
  }
  static void copy_back(Ctx& ctx, const Queries& of, const Tensor& some, const Sink& all) {
    ops::copy_heads(ctx, {.y = all, .x = some, .y_first = of.first, .count = of.heads()});
  }

  void attend(LayerRun& r, const Keys& keys, const Queries& of) const {
    for (const Piece& piece : pieces(r))
      ops::attention(r.ctx, {.y = piece.of(of.y),
                             .lse = of.rows(piece.of_lse(r.value(out_.lse))),
                             .q = piece.of(of.q),
                             .k = keys.k,
                             .v = keys.v,
                             .cu_seqlens = r.tokens.cu_seqlens,
                             .window = o_.window,
                             .scale = o_.scale,
                             .softcap = o_.softcap,
                             .sinks = of.rows(r.w[o_.sinks].weight),
                             .first_query = piece.first});
  }

  void differentiate(LayerRun& r, const Keys& keys, const Queries& of, const KeyGradients& to) const {
    for (const Piece& piece : pieces(r))
      ops::attention_grad(r.ctx, {.dq = piece.of(of.dq),
                                  .dk = to.dk,
                                  .dv = to.dv,
                                  .dy = piece.of(of.dy),
                                  .y = piece.of(of.y),
                                  .q = piece.of(of.q),
                                  .k = keys.k,
                                  .v = keys.v,
                                  .lse = of.rows(piece.of_lse(r.value(out_.lse))),
                                  .cu_seqlens = r.tokens.cu_seqlens,
                                  .window = o_.window,
                                  .scale = o_.scale,
                                  .softcap = o_.softcap,
                                  .first_query = piece.first,
                                  .memory = r.idle});
  }

  // Gradients of keys and values come from all ranks' queries.
  void differentiate_shared(LayerRun& r, const Queries& all, const KeyGradients& to) const {
    const KeyBuffers& memory = r.tokens.shared->buffers;
    SharedHeads keys(r.ctx, *r.tokens.shared, heads(r.value(o_.k)), heads(r.value(o_.v)));
    for (std::int64_t i = 0; i < keys.parts(); ++i) {
      const SharedHeads::Part part = keys.take(i);
      const Tensor dk = part_of(memory.d_keys, part.k.shape), dv = part_of(memory.d_values, part.k.shape);
      for (const Tensor& t : {dk, dv}) ops::fill(r.ctx, {.y = t, .value = 0});
      Queries of = all;
      if (!keys.has_all_at_once()) {
        of = queries_of(r, part, all.q);
        of.dy = part_of(memory.dy, of.q.shape);
        of.dq = store(part_of(memory.dq, of.q.shape));
        copy_out(r.ctx, of, all.q, of.q);
        copy_out(r.ctx, of, all.y, of.y);
        copy_out(r.ctx, of, all.dy, of.dy);
      }
      differentiate(r, {part.k, part.v}, of, {accumulate(dk), accumulate(dv)});
      if (!keys.has_all_at_once()) copy_back(r.ctx, of, of.dq.t, all.dq);
      keys.reduce(part, memory.d_keys, part.k, to.dk);
      keys.reduce(part, memory.d_values, part.v, to.dv);
    }
  }

  void differentiate_sinks(LayerRun& r) const {
    const NormWeight& sinks = r.w[o_.sinks];
    const Tensor y = heads(r.value(out_.y)), dy = heads(r.gradient(out_.y));
    for (const Piece& piece : pieces(r))
      ops::attention_sink_grad(r.ctx, {.dsinks = sinks.grad,
                                       .dy = piece.of(dy),
                                       .y = piece.of(y),
                                       .lse = piece.of_lse(r.value(out_.lse)),
                                       .sinks = sinks.weight});
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
