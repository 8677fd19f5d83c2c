#include "model/projection.h"

#include <array>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"

namespace qtrain {
namespace {

using ops::Transpose;

// Adapters whose A, and gradients of A, lie one below the other: [ranks, in].
struct Stack {
  ConstTensor a;
  Sink da;
  double scale;
  std::int64_t first;  // its first column

  std::int64_t ranks() const { return a.shape[0]; }
  bool continues_with(const LoraWeights& lora) const {
    const auto follows = [](const ConstTensor& above, const ConstTensor& below) {
      return above.data + above.bytes() == below.data && above.dtype == below.dtype;
    };
    if (!follows(a, lora.a) || scale != lora.scale || da.mode != lora.da.mode) return false;
    return !da.wanted() || follows(da.t, lora.da.t);
  }
  void add(const LoraWeights& lora) {
    a.shape.dims[0] += lora.a.shape[0];
    if (da.wanted()) da.t.shape.dims[0] += lora.a.shape[0];
  }
};

// The adapters among layers that read one input.
class Adapters {
 public:
  template <class Layer>
  explicit Adapters(const std::vector<Layer>& layers) {
    for (const Layer& l : layers)
      if (l.layer.lora.present()) add(l.layer.lora);
  }
  bool empty() const { return stacks_.empty(); }
  const std::vector<Stack>& stacks() const { return stacks_; }
  std::int64_t ranks() const { return ranks_; }
  const LoraWeights& first() const { return *first_; }

 private:
  void add(const LoraWeights& lora) {
    if (empty()) first_ = &lora;
    if (!empty() && stacks_.back().continues_with(lora))
      stacks_.back().add(lora);
    else
      stacks_.push_back({lora.a, lora.da, lora.scale, ranks_});
    ranks_ += lora.a.shape[0];
  }

  std::vector<Stack> stacks_;
  std::int64_t ranks_ = 0;
  const LoraWeights* first_ = nullptr;
};

// [T, R] at the beginning of memory that other ranks use as well; each adapter has some of its columns.
template <class Memory>
class RankColumns {
 public:
  RankColumns(Memory memory, std::int64_t tokens, std::int64_t ranks)
      : all_(memory.reshaped({memory.numel()}).slice(0, tokens * ranks).reshaped({tokens, ranks})) {}
  Memory columns(std::int64_t first, std::int64_t count) const {
    Memory part = all_;
    if (part.data) part.data += static_cast<std::size_t>(first) * size_of(part.dtype);
    part.shape = {all_.shape[0], count};
    return part;
  }
  std::int64_t stride() const { return all_.shape[1]; }

 private:
  Memory all_;
};

// What the adapters read instead of x: dropout(x) in training. Its memory follows the gradients [T, R] in the scratch.
class AdapterInput {
 public:
  AdapterInput(const Adapters& adapters, ConstTensor seed, Tensor scratch)
      : lora_(adapters.first()), ranks_(adapters.ranks()), seed_(seed), scratch_(scratch) {}
  bool drops() const { return lora_.dropout > 0 && static_cast<bool>(seed_); }
  Tensor memory(const Shape& shape) const { return scratch_.slice(shape[0] * ranks_, shape.numel()).reshaped(shape); }
  void drop(Ctx& ctx, Sink y, ConstTensor x) const {
    ops::dropout(ctx, {.y = y, .x = x, .seed = seed_, .stream = lora_.stream, .p = lora_.dropout});
  }
  ConstTensor of(Ctx& ctx, ConstTensor x) const {
    if (!drops()) return x;
    const Tensor dropped = memory(x.shape);
    drop(ctx, store(dropped), x);
    return dropped;
  }

 private:
  const LoraWeights& lora_;
  std::int64_t ranks_;
  ConstTensor seed_;
  Tensor scratch_;
};

Shape shape_of(const QuantisedWeight& w) {
  if (const auto* rows = std::get_if<Rows8>(&w)) return rows->codes.shape;
  return std::get<ops::Blocks4>(w).shape;
}

// W as products read it; a quantised one in `memory`.
ConstTensor dense_weight(Ctx& ctx, const Projection& p, Tensor memory) {
  if (!p.quantised) return p.weight;
  const Shape shape = shape_of(*p.quantised);
  const Tensor dense = memory.slice(0, shape.numel()).reshaped(shape);
  expand(ctx, *p.quantised, dense);
  return dense;
}

// y = x W^T + bias + the product of an adapter, if there is one.
void project_layer(Ctx& ctx, const ProjectionForward& f, const ProjectionForward::Layer& l,
                   const ops::Factors& adapter) {
  const Projection& p = l.layer;
  const auto* blocks = p.quantised ? std::get_if<ops::Blocks4>(&*p.quantised) : nullptr;
  if (!blocks || f.x.shape[0] > ops::Gemm4::kFewRows)
    return ops::gemm(ctx, {.c = store(l.y),
                           .a = f.x,
                           .b = dense_weight(ctx, p, f.dense),
                           .transpose_b = Transpose::yes,
                           .bias = p.bias,
                           .added = {adapter}});
  ops::gemm4(ctx, {.c = store(l.y), .a = f.x, .w = *blocks, .bias = p.bias});
  if (adapter.present())
    ops::gemm(ctx, {.c = accumulate(l.y),
                    .a = adapter.a,
                    .b = adapter.b,
                    .transpose_b = Transpose::yes,
                    .a_stride = adapter.a_stride});
}

// dx += dy W of every layer, with the last also what comes through the adapters.
void input_grad(Ctx& ctx, const ProjectionBackward& b, const std::array<ops::Factors, 3>& adapters) {
  Sink dx = b.dx;
  for (const auto& [layer, dy] : b.layers) {
    ops::Gemm g{.c = dx, .a = dy, .b = dense_weight(ctx, layer, b.dense)};
    if (&layer == &b.layers.back().layer) g.added = adapters;
    ops::gemm(ctx, g);
    dx = accumulate(dx.t);
  }
}

// dlora_x [T, R] = scale * dy B, and the gradients of each B.
void lora_x_grad(Ctx& ctx, const ProjectionBackward& b, const RankColumns<Tensor>& gradients) {
  const RankColumns lora_x(b.lora_x, b.x.shape[0], gradients.stride());
  std::int64_t first = 0;
  for (const auto& [layer, dy] : b.layers) {
    const LoraWeights& lora = layer.lora;
    if (!lora.present()) continue;
    const std::int64_t rank = lora.a.shape[0];
    if (lora.db.wanted())
      ops::gemm(ctx, {.c = lora.db,
                      .a = dy,
                      .b = lora_x.columns(first, rank),
                      .transpose_a = Transpose::yes,
                      .b_stride = lora_x.stride()});
    ops::gemm(ctx, {.c = store(gradients.columns(first, rank)),
                    .a = dy,
                    .b = lora.b,
                    .alpha = lora.scale,
                    .c_stride = gradients.stride()});
    first += rank;
  }
}

void stacks_grad(Ctx& ctx, const ProjectionBackward& b, const Adapters& adapters) {
  const RankColumns gradients(b.scratch, b.x.shape[0], adapters.ranks());
  lora_x_grad(ctx, b, gradients);
  const AdapterInput input(adapters, b.dropout_seed, b.scratch);
  std::array<ops::Factors, 3> into_x;
  std::size_t count = 0;
  const ConstTensor x = adapters.first().da.wanted() ? input.of(ctx, b.x) : b.x;
  for (const Stack& s : adapters.stacks()) {
    const Tensor part = gradients.columns(s.first, s.ranks());
    ops::gemm(ctx, {.c = s.da, .a = part, .b = x, .transpose_a = Transpose::yes, .a_stride = gradients.stride()});
    into_x.at(count++) = {.a = part, .b = s.a, .a_stride = gradients.stride()};
  }
  if (!b.dx.wanted()) return;
  if (!input.drops()) return input_grad(ctx, b, into_x);
  input_grad(ctx, b, {});
  const Tensor dropped = input.memory(b.dx.t.shape);
  ops::Gemm through{.c = store(dropped), .a = into_x[0].a, .b = into_x[0].b, .a_stride = into_x[0].a_stride};
  through.added = {into_x[1], into_x[2]};
  ops::gemm(ctx, through);
  input.drop(ctx, accumulate(b.dx.t), dropped);
}

}  // namespace

void expand(Ctx& ctx, const QuantisedWeight& w, Tensor y) {
  if (const auto* rows = std::get_if<Rows8>(&w))
    ops::dequantise_rows8(ctx, {.y = y, .codes = rows->codes, .scale = rows->scale});
  else
    ops::dequantise4(ctx, {.y = y, .w = std::get<ops::Blocks4>(w)});
}

std::int64_t projection_scratch(std::int64_t tokens, std::int64_t in, std::int64_t ranks, double dropout) {
  return tokens * (ranks + (dropout > 0 ? in : 0));
}

void project(Ctx& ctx, const ProjectionForward& f) {
  const Adapters adapters(f.layers);
  if (adapters.empty()) {
    for (const auto& l : f.layers) project_layer(ctx, f, l, {});
    return;
  }
  const RankColumns lora_x(f.lora_x, f.x.shape[0], adapters.ranks());
  const ConstTensor x = AdapterInput(adapters, f.dropout_seed, f.scratch).of(ctx, f.x);
  for (const Stack& s : adapters.stacks())
    ops::gemm(ctx, {.c = store(lora_x.columns(s.first, s.ranks())),
                    .a = x,
                    .b = s.a,
                    .transpose_b = Transpose::yes,
                    .alpha = s.scale,
                    .c_stride = lora_x.stride()});
  std::int64_t first = 0;
  for (const auto& l : f.layers) {
    const LoraWeights& lora = l.layer.lora;
    const std::int64_t rank = lora.present() ? lora.a.shape[0] : 0;
    ops::Factors adapter;
    if (rank > 0)
      adapter = {
          .a = lora_x.columns(first, rank), .b = lora.b, .transpose_b = Transpose::yes, .a_stride = lora_x.stride()};
    project_layer(ctx, f, l, adapter);
    first += rank;
  }
}

void project_grad(Ctx& ctx, const ProjectionBackward& b) {
  for (const auto& [layer, dy] : b.layers) {
    ops::column_sum(ctx, {.y = layer.dbias, .x = dy});
    ops::gemm(ctx, {.c = layer.dweight, .a = dy, .b = b.x, .transpose_a = Transpose::yes});
  }
  const Adapters adapters(b.layers);
  if (!adapters.empty()) return stacks_grad(ctx, b, adapters);
  if (b.dx.wanted()) input_grad(ctx, b, {});
}

}  // namespace qtrain
