#include "model/stages/attention.h"

#include "kernels/attention.h"
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
    ops::attention(r.ctx, {.y = heads(r.value(out_.y)),
                           .lse = r.value(out_.lse),
                           .q = heads(r.value(o_.q)),
                           .k = heads(r.value(o_.k)),
                           .v = heads(r.value(o_.v)),
                           .cu_seqlens = r.tokens.cu_seqlens,
                           .window = o_.window,
                           .scale = o_.scale,
                           .softcap = o_.softcap,
                           .sinks = r.w[o_.sinks].weight});
  }
  void backward(LayerRun& r) const override {
    check(!r.tokens.key_cache, "generation has no backward pass");
    const auto wanted = [&](TensorId t) {
      const Sink s = r.grad(t);
      return Sink{heads(s.t), s.mode};
    };
    const Sink dq = wanted(o_.q), dk = wanted(o_.k), dv = wanted(o_.v);
    ops::attention_grad(r.ctx, {.dq = dq,
                                .dk = dk,
                                .dv = dv,
                                .dy = heads(r.gradient(out_.y)),
                                .y = heads(r.value(out_.y)),
                                .q = heads(r.value(o_.q)),
                                .k = heads(r.value(o_.k)),
                                .v = heads(r.value(o_.v)),
                                .lse = r.value(out_.lse),
                                .cu_seqlens = r.tokens.cu_seqlens,
                                .window = o_.window,
                                .scale = o_.scale,
                                .softcap = o_.softcap});
    ops::attention_sink_grad(r.ctx, {.dsinks = r.w[o_.sinks].grad,
                                     .dy = heads(r.gradient(out_.y)),
                                     .y = heads(r.value(out_.y)),
                                     .lse = r.value(out_.lse),
                                     .sinks = r.w[o_.sinks].weight});
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
