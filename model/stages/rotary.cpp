#include "model/stages/rotary.h"

#include <array>
#include <optional>

#include "kernels/rope.h"
#include "kernels/split_rope.h"
#include "model/stages/heads.h"

namespace qtrain::stages {
namespace {

class RotaryStage final : public Stage {
 public:
  /// The tensors of the queries or of the keys.
  struct Heads {
    TensorId x, y;
    VectorId weight;
    std::optional<TensorId> inv_rms;  // if there is a head norm
  };
  RotaryStage(std::array<Heads, 2> heads, const Rotary& o, const ModelConfig& c)
      : heads_(heads), head_dim_(o.head_dim), table_(o.table), eps_(c.rms_norm_eps), offset_(c.norm_offset) {
    name = "rotary";
    for (const Heads& h : heads_) {
      reads.add(h.x);
      writes.add(h.y);
      if (!h.inv_rms) continue;
      writes.add(*h.inv_rms);
      adjoint_reads.add(h.x);
      adjoint_reads.add(*h.inv_rms);
    }
  }
  bool trains(const LayerWeights& w) const override {
    return w[heads_[0].weight].grad.wanted() || w[heads_[1].weight].grad.wanted();
  }
  void forward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[table_];
    const auto heads = [&](const Heads& h) {
      return ops::Rope::Heads{.y = as_heads(r.value(h.y), head_dim_),
                              .x = as_heads(r.value(h.x), head_dim_),
                              .weight = r.w[h.weight].weight,
                              .inv_rms = inv_rms(r, h)};
    };
    ops::rope(r.ctx, {.q = heads(heads_[0]),
                      .k = heads(heads_[1]),
                      .cos = table.cos,
                      .sin = table.sin,
                      .positions = r.tokens.positions,
                      .eps = eps_,
                      .weight_offset = offset_});
  }
  void backward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[table_];
    const auto heads = [&](const Heads& h) {
      Sink dx = r.grad(h.x);
      dx.t = as_heads(dx.t, head_dim_);
      return ops::RopeGrad::Heads{.dx = dx,
                                  .dy = as_heads(r.gradient(h.y), head_dim_),
                                  .x = as_heads(r.value(h.x), head_dim_),
                                  .weight = r.w[h.weight].weight,
                                  .inv_rms = inv_rms(r, h),
                                  .dweight = r.w[h.weight].grad};
    };
    ops::rope_grad(r.ctx, {.q = heads(heads_[0]),
                           .k = heads(heads_[1]),
                           .cos = table.cos,
                           .sin = table.sin,
                           .positions = r.tokens.positions,
                           .weight_offset = offset_});
  }

 private:
  static Tensor inv_rms(const LayerRun& r, const Heads& h) { return h.inv_rms ? r.value(*h.inv_rms) : Tensor{}; }

  std::array<Heads, 2> heads_;  // queries, keys
  std::int64_t head_dim_;
  std::size_t table_;
  double eps_, offset_;
};

class SplitRotaryStage final : public Stage {
 public:
  SplitRotaryStage(const SplitRotary& o, const SplitHeads& out) : o_(o), out_(out) {
    name = "split_rotary";
    reads = {o.x};
    writes = {out.q, out.k, out.v};
  }
  void forward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[o_.table];
    ops::split_rope(r.ctx, {.q = heads(r.value(out_.q)),
                            .k = heads(r.value(out_.k)),
                            .v = heads(r.value(out_.v)),
                            .qkv = r.value(o_.x),
                            .cos = table.cos,
                            .sin = table.sin,
                            .positions = r.tokens.positions});
  }
  void backward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[o_.table];
    ops::split_rope_grad(r.ctx, {.dqkv = r.grad(o_.x),
                                 .dq = heads(r.gradient(out_.q)),
                                 .dk = heads(r.gradient(out_.k)),
                                 .dv = heads(r.gradient(out_.v)),
                                 .cos = table.cos,
                                 .sin = table.sin,
                                 .positions = r.tokens.positions});
  }

 private:
  Tensor heads(const Tensor& t) const { return as_heads(t, o_.head_dim); }

  SplitRotary o_;
  SplitHeads out_;
};

}  // namespace

Rotated rotary(LayerBuilder& b, const Rotary& r) {
  const auto heads = [&](TensorId x, VectorId weight) {
    const std::int64_t width = b.width(x);
    const std::string name = b.name(x);
    RotaryStage::Heads h{.x = x,
                         .y = b.tensor({.name = name + ".rotated", .shape = {kTokens, {.fixed = width}}}),
                         .weight = weight,
                         .inv_rms = {}};
    if (weight != VectorId::none)
      h.inv_rms = b.tensor({.name = name + ".inv_rms",
                            .shape = {kTokens, {.fixed = width / r.head_dim}},
                            .precision = Precision::full,
                            .gradient = HasGradient::no});
    b.recompute_selectively(x);
    return h;
  };
  const RotaryStage::Heads q = heads(r.q, r.q_weight), k = heads(r.k, r.k_weight);
  b.stage(std::make_unique<RotaryStage>(std::array{q, k}, r, b.config()));
  return {.q = q.y, .k = k.y};
}

SplitHeads split_rotary(LayerBuilder& b, const SplitRotary& s) {
  const auto part = [&](const char* which, std::int64_t heads) {
    return b.tensor({.name = b.name(s.x) + which, .shape = {kTokens, {.fixed = heads * s.head_dim}}});
  };
  const SplitHeads out{.q = part(".q", s.heads), .k = part(".k", s.kv_heads), .v = part(".v", s.kv_heads)};
  b.stage(std::make_unique<SplitRotaryStage>(s, out));
  return out;
}

}  // namespace qtrain::stages
