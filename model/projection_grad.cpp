#include <array>

#include "kernels/adapter_grads.h"
#include "kernels/reduce.h"
#include "model/projection_parts.h"

namespace qtrain {
namespace {

using ops::Transpose;
using JointGrad = Joint<ProjectionBackward::Layer>;

// The largest magnitudes of the dy of a GEMM: those of all dy, if it has them all.
ConstTensor largest_of(const ProjectionBackward& b, const std::vector<JointGrad>& joints) {
  return joints.size() == 1 ? b.dy_largest : ConstTensor{};
}

// Gradients of layers that read the same input, some of which have adapters.
class AdaptersGrad {
 public:
  AdaptersGrad(Ctx& ctx, const ProjectionBackward& b, const Adapters& adapters, const std::vector<JointGrad>& joints)
      : ctx_(ctx),
        b_(b),
        joints_(joints),
        adapters_(adapters),
        input_(adapters, b.dropout_seed, b.scratch),
        gradients_(b.scratch, b.x.shape[0], adapters.ranks()) {
    joins_ = b.joint_stride != 0 && b.dx.wanted() && ops::reads_once(ctx, joint_op());
    if (joins_) gradients_ = RankColumns(columns_of(joint_dy(), outputs(), adapters.ranks()), b.joint_stride);
  }

  void run() {
    const ConstTensor x = adapters_.first().da.wanted() ? input_.of(ctx_, b_.x) : b_.x;
    lora_x_grad(x);
    for (const Stack& s : adapters_.stacks()) {
      const Tensor part = gradients_.columns(s.first, s.ranks());
      ops::gemm(ctx_, {.c = s.da,
                       .a = part,
                       .b = x,
                       .transpose_a = Transpose::yes,
                       .a_stride = gradients_.stride(),
                       .b_stride = b_.x_stride});
      into_x_.at(stacks_++) = {.a = part, .b = s.a, .a_stride = gradients_.stride()};
    }
    if (!b_.dx.wanted()) return;
    if (joins_) return joint_input_grad();
    input_grad();
    if (input_.drops()) dropped_input_grad();
  }

 private:
  // [dy | du] for one GEMM of dx: dy is copied, where du is beside it.
  Tensor joint_dy() const {
    Tensor all = b_.joint;
    all.shape = {b_.x.shape[0], outputs()};
    return all;
  }
  std::int64_t outputs() const { return b_.layers.front().dy.shape[1]; }
  ops::AdapterGrads joint_op() const {
    const ProjectionBackward::Layer& l = b_.layers.front();
    const RankColumns lora_x = saved_lora_x();
    ops::AdapterGrads op{.dy_stride = b_.dy_stride,
                         .u_stride = lora_x.stride(),
                         .du_stride = b_.joint_stride,
                         .copy_stride = b_.joint_stride};
    op.layers[0] = {.dy = l.dy,
                    .b = l.layer.lora.b,
                    .u = lora_x.columns(0, adapters_.ranks()),
                    .du = columns_of(joint_dy(), outputs(), adapters_.ranks()),
                    .db = l.layer.lora.db,
                    .scale = l.layer.lora.scale,
                    .copy = joint_dy()};
    return op;
  }
  RankColumns<ConstTensor> saved_lora_x() const {
    return b_.x_stride == 0 ? RankColumns(b_.lora_x, b_.x.shape[0], adapters_.ranks())
                            : RankColumns(b_.lora_x, b_.lora_stride);
  }

  // dx (+)= [dy | du] [W; A], for which A is copied behind a copy of W.
  void joint_input_grad() const {
    const Projection& p = b_.layers.front().layer;
    const std::int64_t in = b_.x.shape[1], ranks = adapters_.ranks();
    check(b_.dense.numel() >= (outputs() + ranks) * in, "no memory for a weight with its adapter");
    const Tensor w = b_.dense.slice(0, outputs() * in).reshaped({outputs(), in});
    if (p.quantized)
      expand(ctx_, *p.quantized, w);
    else
      ops::copy(ctx_, {.y = store(w), .x = p.weight});
    ops::copy(ctx_, {.y = store(b_.dense.slice(w.numel(), ranks * in)), .x = p.lora.a});
    Tensor both = joint_dy();
    both.shape.dims[1] += ranks;
    ops::gemm(ctx_, {.c = b_.dx,
                     .a = both,
                     .b = b_.dense.slice(0, (outputs() + ranks) * in).reshaped({outputs() + ranks, in}),
                     .a_stride = b_.joint_stride});
  }

  // The gradient that reaches W and B: dy, or with a magnitude (m / norm + shift) * dy.
  ConstTensor inner_grad(const ProjectionBackward::Layer& l, double shift = 0) const {
    if (!l.layer.lora.decomposed()) return l.dy;
    const Tensor scaled = input_.results(l.dy.shape);
    ops::ScaleToMagnitude scale = scaling(l.layer.lora, store(scaled), l.dy);
    scale.shift = shift;
    ops::scale_to_magnitude(ctx_, scale);
    return scaled;
  }

  // Recomputes V x: y would have to be saved, and with dropout it is a different sum.
  void magnitude_grad(const ProjectionBackward::Layer& l, ConstTensor x, const ops::Factors& adapter) const {
    if (!l.layer.lora.dmagnitude.wanted()) return;
    const Tensor v = input_.results(l.dy.shape);
    ops::gemm(ctx_, {.c = store(v),
                     .a = x,
                     .b = dense_weight(ctx_, l.layer, b_.dense),
                     .transpose_b = Transpose::yes,
                     .added = {adapter}});
    ops::magnitude_grad(ctx_, {.dmagnitude = l.layer.lora.dmagnitude, .dy = l.dy, .v = v, .norm = l.layer.lora.norm});
  }

  // dlora_x [T, R] = scale * dy B, and the gradients of each B and magnitude. The layers are one op, unless they have
  // magnitudes, whose gradients share memory.
  void lora_x_grad(ConstTensor x) const {
    if (joins_) return ops::adapter_grads(ctx_, joint_op());
    const RankColumns lora_x = saved_lora_x();
    ops::AdapterGrads op{.dy_stride = b_.dy_stride, .u_stride = lora_x.stride(), .du_stride = gradients_.stride()};
    std::size_t count = 0;
    const auto compute = [&] {
      if (count > 0) ops::adapter_grads(ctx_, op);
      op.layers = {};
      count = 0;
    };
    std::int64_t first = 0;
    for (const auto& l : b_.layers) {
      const LoraWeights& lora = l.layer.lora;
      if (!lora.present()) continue;
      magnitude_grad(l, x, lora_x.times_b(first, lora));
      op.layers.at(count++) = {.dy = inner_grad(l),
                               .b = lora.b,
                               .u = lora_x.columns(first, lora.rank()),
                               .du = gradients_.columns(first, lora.rank()),
                               .db = lora.db,
                               .scale = lora.scale};
      if (lora.decomposed() || count == op.layers.size()) compute();
      first += lora.rank();
    }
    compute();
  }

  // dx += dy W for every layer; unless adapters read dropout(x), the last GEMM also adds the gradient through the
  // adapters.
  void input_grad() const {
    Sink dx = b_.dx;
    for (const JointGrad& joint : joints_) {
      const ConstTensor dy = joint.is_one() && !input_.drops() ? inner_grad(joint.layers().front()) : joint.result();
      ops::Gemm g{.c = dx,
                  .a = dy,
                  .a_stride = b_.dy_stride,
                  .fp8 = fp8_of(joint.first(), GemmOfLayer::input_grad, largest_of(b_, joints_))};
      set_weight(ctx_, g, joint, b_.dense);
      if (&joint == &joints_.back() && !input_.drops()) g.added = into_x_;
      ops::gemm(ctx_, g);
      dx = accumulate(dx.t);
    }
  }

  // The gradient through dropout(x): through the adapters, and (m / norm - 1) dy W.
  void dropped_input_grad() const {
    const Tensor dropped = input_.memory(b_.dx.t.shape);
    ops::Gemm through{.c = store(dropped), .a = into_x_[0].a, .b = into_x_[0].b, .a_stride = into_x_[0].a_stride};
    through.added = {into_x_[1], into_x_[2]};
    ops::gemm(ctx_, through);
    for (const auto& l : b_.layers)
      if (l.layer.lora.decomposed())
        ops::gemm(ctx_, {.c = accumulate(dropped), .a = inner_grad(l, -1), .b = dense_weight(ctx_, l.layer, b_.dense)});
    input_.drop(ctx_, accumulate(b_.dx.t), dropped);
  }

  Ctx& ctx_;
  const ProjectionBackward& b_;
  const std::vector<JointGrad>& joints_;
  const Adapters& adapters_;
  AdapterInput input_;
  RankColumns<Tensor> gradients_;
  bool joins_ = false;
  std::array<ops::Factors, 3> into_x_;  // GEMMs of the gradients of A x with A
  std::size_t stacks_ = 0;
};

// dx += dy W for every layer.
void input_grad(Ctx& ctx, const ProjectionBackward& b, const std::vector<JointGrad>& joints) {
  Sink dx = b.dx;
  for (const JointGrad& joint : joints) {
    ops::Gemm g{.c = dx,
                .a = joint.result(),
                .a_stride = b.dy_stride,
                .fp8 = fp8_of(joint.first(), GemmOfLayer::input_grad, largest_of(b, joints))};
    set_weight(ctx, g, joint, b.dense);
    ops::gemm(ctx, g);
    dx = accumulate(dx.t);
  }
}

}  // namespace

void project_grad(Ctx& ctx, const ProjectionBackward& b) {
  const std::vector<JointGrad> joints = joints_of(b.layers, b.dy_stride);
  for (const auto& [layer, dy] : b.layers) ops::column_sum(ctx, {.y = layer.dbias, .x = dy, .x_stride = b.dy_stride});
  for (const JointGrad& joint : joints)
    ops::gemm(ctx, {.c = joint.dweight(),
                    .a = joint.result(),
                    .b = b.x,
                    .transpose_a = Transpose::yes,
                    .a_stride = b.dy_stride,
                    .b_stride = b.x_stride,
                    .fp8 = fp8_of(joint.first(), GemmOfLayer::weight_grad, largest_of(b, joints))});
  const Adapters adapters(b.layers);
  if (!adapters.empty()) return AdaptersGrad(ctx, b, adapters, joints).run();
  if (b.dx.wanted()) input_grad(ctx, b, joints);
}

}  // namespace qtrain
