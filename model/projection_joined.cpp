// Layers and their adapters in one GEMM; docs/kernels/gemm.md has the formulas.
#include <numeric>

#include "kernels/adapter_columns.h"
#include "kernels/head_copy.h"
#include "model/projection_parts.h"

namespace qtrain {
namespace {

using ops::Transpose;

/// [W | diag(B)] of all layers, with the row stride of x. It is made for each pass, since the memory is shared.
ConstTensor weights_with_adapters(Ctx& ctx, const ProjectionForward& f, std::int64_t ranks) {
  const std::int64_t in = f.x.shape[1], stride = f.x_stride;
  ops::AdapterColumns columns{.y = f.dense, .y_stride = stride, .layers = {}};
  check(f.layers.size() <= columns.layers.size(), "too many layers with adapters in one GEMM");
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < f.layers.size(); ++i) {
    const Projection& p = f.layers[i].layer;
    const std::int64_t out = shape_of(p)[0];
    check((rows + out) * stride <= f.dense.numel(), "no memory for weights with adapters");
    if (p.quantized) expand(ctx, *p.quantized, {f.dense.slice(rows * stride, out * in).reshaped({out, in}), stride});
    columns.layers[i] = {.rows = out, .w = p.quantized ? ConstTensor{} : p.weight, .b = p.lora.b};
    rows += out;
  }
  columns.y.shape = {rows, in + ranks};
  ops::adapter_columns(ctx, columns);
  return columns.y;
}

/// The rows of such a matrix, one GEMM after the other.
class RowsOfJoints {
 public:
  RowsOfJoints(ConstTensor all, std::int64_t stride) : rest_(all), stride_(stride) {}
  ConstTensor next(std::int64_t count) {
    ConstTensor rows = rest_;
    rows.shape.dims[0] = count;
    rest_.data += static_cast<std::size_t>(count * stride_) * size_of(rest_.dtype);
    return rows;
  }

 private:
  ConstTensor rest_;
  std::int64_t stride_;
};

/// Keeps A x where it is not overwritten when x is computed again.
void keep_lora_x(Ctx& ctx, const ProjectionForward& f, std::int64_t ranks) {
  const std::int64_t in = f.x.shape[1], tokens = f.x.shape[0];
  const std::int64_t size = std::gcd(std::gcd(in, f.x_stride), ranks);
  ConstTensor from = f.x;
  from.shape = {tokens, f.x_stride / size, size};
  const Tensor to = f.lora_x.reshaped({f.lora_x.numel()}).slice(0, tokens * ranks);
  ops::copy_heads(
      ctx,
      {.y = store(to.reshaped({tokens, ranks / size, size})), .x = from, .x_first = in / size, .count = ranks / size});
}

}  // namespace

void multiply_beside_x(Ctx& ctx, const ProjectionForward& f, const Adapters& adapters) {
  const std::int64_t ranks = adapters.ranks();
  check(f.x.shape[1] + ranks <= f.x_stride, "no columns after x for adapters");
  for (const Stack& s : adapters.stacks())
    ops::gemm(ctx, {.c = store(columns_of(f.after_x, s.first, s.ranks())),
                    .a = f.x,
                    .b = s.a,
                    .transpose_b = Transpose::yes,
                    .alpha = s.scale,
                    .a_stride = f.x_stride,
                    .c_stride = f.x_stride});
  if (f.lora_x.numel() > 0) keep_lora_x(ctx, f, ranks);
}

void project_with_adapters(Ctx& ctx, const ProjectionForward& f, const Adapters& adapters) {
  multiply_beside_x(ctx, f, adapters);
  const std::int64_t ranks = adapters.ranks();
  RowsOfJoints weights(weights_with_adapters(ctx, f, ranks), f.x_stride);
  ConstTensor both = f.x;
  both.shape.dims[1] += ranks;
  for (const auto& joint : joints_of(f.layers, f.y_stride, Weights::copied))
    ops::gemm(ctx, {.c = store(joint.result()),
                    .a = both,
                    .b = weights.next(joint.result().shape[1]),
                    .transpose_b = Transpose::yes,
                    .bias = joint.bias(),
                    .a_stride = f.x_stride,
                    .b_stride = f.x_stride,
                    .c_stride = f.y_stride,
                    .residual = f.residual});
}

}  // namespace qtrain
