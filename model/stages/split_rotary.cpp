#include "model/stages/split_rotary.h"

#include "kernels/split_rope.h"
#include "model/stages/heads.h"

namespace qtrain::stages {
namespace {

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

SplitHeads split_rotary(LayerBuilder& b, const SplitRotary& s) {
  const auto part = [&](const char* which, std::int64_t heads) {
    return b.tensor({.name = b.name(s.x) + which, .shape = {kTokens, {.fixed = heads * s.head_dim}}});
  };
  const SplitHeads out{.q = part(".q", s.heads), .k = part(".k", s.kv_heads), .v = part(".v", s.kv_heads)};
  b.stage(std::make_unique<SplitRotaryStage>(s, out));
  return out;
}

}  // namespace qtrain::stages
