#include "model/stages/rotary.h"

#include <array>
#include <optional>
#include <utility>

#include "kernels/rope.h"
#include "kernels/split_rope.h"
#include "model/projection_parts.h"
#include "model/stages/heads.h"

namespace qtrain::stages {
namespace {

/// The tensors of queries, keys or values.
struct RotatedHeads {
  TensorId x, y;
  VectorId weight = VectorId::none;
  std::optional<TensorId> inv_rms = {};  // if there is a head norm
  std::int64_t first = 0, width = 0;     // their columns of x
};

class RotaryStage final : public Stage {
 public:
  using Parts = std::array<std::optional<RotatedHeads>, 3>;  // queries, keys, and values if all three are in one x

  /// `stride`: elements per row of x if that is one tensor; 0 if queries and keys are separate tensors.
  RotaryStage(Parts parts, std::int64_t stride, const Rotary& o, const ModelConfig& c)
      : parts_(parts),
        stride_(stride),
        head_dim_(o.head_dim),
        table_(o.table),
        query_table_(o.query_table),
        eps_(c.rms_norm_eps),
        offset_(c.norm_offset) {
    name = "rotary";
    for (const auto& h : parts_) {
      if (!h) continue;
      reads.add(h->x);
      writes.add(h->y);
      if (!h->inv_rms) continue;
      writes.add(*h->inv_rms);
      adjoint_reads.add(h->x);
      adjoint_reads.add(*h->inv_rms);
    }
  }
  bool trains(const LayerWeights& w) const override {
    return w[parts_[0]->weight].grad.wanted() || w[parts_[1]->weight].grad.wanted();
  }
  void forward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[table_];
    const auto heads = [&](const std::optional<RotatedHeads>& h) {
      if (!h) return ops::Rope::Heads{};
      return ops::Rope::Heads{.y = as_heads(r.value(h->y), head_dim_),
                              .x = heads_in(r.value(h->x), *h),
                              .weight = r.w[h->weight].weight,
                              .inv_rms = inv_rms(r, *h)};
    };
    ops::Rope all{.q = heads(parts_[0]),
                  .k = heads(parts_[1]),
                  .v = heads(parts_[2]),
                  .cos = table.cos,
                  .sin = table.sin,
                  .positions = r.tokens.positions,
                  .eps = eps_,
                  .weight_offset = offset_,
                  .x_stride = stride_};
    rotate_queries_apart(r, all, [&](const ops::Rope& part) { ops::rope(r.ctx, part); });
  }
  void backward(LayerRun& r) const override {
    const RotaryTable& table = r.tokens.rotary[table_];
    const auto heads = [&](const std::optional<RotatedHeads>& h, const Sink& dx) {
      if (!h) return ops::RopeGrad::Heads{};
      return ops::RopeGrad::Heads{.dx = {heads_in(dx.t, *h), dx.mode},
                                  .dy = as_heads(r.gradient(h->y), head_dim_),
                                  .x = heads_in(r.value(h->x), *h),
                                  .weight = r.w[h->weight].weight,
                                  .inv_rms = inv_rms(r, *h),
                                  .dweight = r.w[h->weight].grad};
    };
    const Sink dq = r.grad(parts_[0]->x), dk = stride_ == 0 ? r.grad(parts_[1]->x) : dq;
    ops::RopeGrad all{.q = heads(parts_[0], dq),
                      .k = heads(parts_[1], dk),
                      .v = heads(parts_[2], dq),
                      .cos = table.cos,
                      .sin = table.sin,
                      .positions = r.tokens.positions,
                      .weight_offset = offset_,
                      .x_stride = stride_};
    rotate_queries_apart(r, all, [&](const ops::RopeGrad& part) { ops::rope_grad(r.ctx, part); });
  }

 private:
  // Calls `run` with all heads, or first with the queries alone if they have another table.
  template <class Op, class Run>
  void rotate_queries_apart(LayerRun& r, Op& all, const Run& run) const {
    if (query_table_) {
      Op queries = all;
      queries.k = queries.v = {};
      queries.cos = r.tokens.rotary[*query_table_].cos;
      queries.sin = r.tokens.rotary[*query_table_].sin;
      run(queries);
      all.q = std::exchange(all.k, {});
    }
    run(all);
  }
  static Tensor inv_rms(const LayerRun& r, const RotatedHeads& h) { return h.inv_rms ? r.value(*h.inv_rms) : Tensor{}; }
  Tensor heads_in(const Tensor& x, const RotatedHeads& h) const {
    return as_heads(stride_ == 0 ? x : columns_of(x, h.first, h.width), head_dim_);
  }

  Parts parts_;
  std::int64_t stride_;
  std::int64_t head_dim_;
  std::size_t table_;
  std::optional<std::size_t> query_table_;
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

// Declares the results of the heads with this name.
RotatedHeads rotated(LayerBuilder& b, RotatedHeads h, std::int64_t head_dim, const std::string& name) {
  h.y = b.tensor({.name = name + ".rotated", .shape = {kTokens, {.fixed = h.width}}});
  if (h.weight != VectorId::none)
    h.inv_rms = b.tensor({.name = name + ".inv_rms",
                          .shape = {kTokens, {.fixed = h.width / head_dim}},
                          .precision = Precision::full,
                          .gradient = HasGradient::no});
  b.recompute_selectively(h.x);
  return h;
}

}  // namespace

Rotated rotary(LayerBuilder& b, const Rotary& r) {
  const auto heads = [&](TensorId x, VectorId weight) {
    return rotated(b, {.x = x, .y = {}, .weight = weight, .width = b.width(x)}, r.head_dim, b.name(x));
  };
  const RotatedHeads q = heads(r.q, r.q_weight), k = heads(r.k, r.k_weight);
  b.stage(std::make_unique<RotaryStage>(RotaryStage::Parts{q, k}, 0, r, b.config()));
  return {.q = q.y, .k = k.y};
}

SplitHeads joined_rotary(LayerBuilder& b, const JoinedRotary& r) {
  std::int64_t first = 0;
  const auto heads = [&](const char* which, std::int64_t count, VectorId weight) {
    const std::int64_t width = count * r.head_dim;
    const RotatedHeads h{.x = r.x, .y = {}, .weight = weight, .first = first, .width = width};
    first += width;
    return rotated(b, h, r.head_dim, b.name(r.x) + which);
  };
  const RotatedHeads q = heads(".q", r.heads, r.q_weight), k = heads(".k", r.kv_heads, r.k_weight),
                     v = heads(".v", r.kv_heads, VectorId::none);
  b.stage(std::make_unique<RotaryStage>(
      RotaryStage::Parts{q, k, v}, b.width(r.x),
      Rotary{.q = r.x, .k = r.x, .head_dim = r.head_dim, .table = r.table, .query_table = r.query_table}, b.config()));
  return {.q = q.y, .k = k.y, .v = v.y};
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
