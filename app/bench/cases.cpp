#include "app/bench/cases.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/glu.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace qtrain::bench {
namespace {

using Tensors = std::span<const Tensor>;
using ops::Transpose;

double as_double(std::int64_t n) {
  return static_cast<double>(n);
}
double bytes_of(const Shape& shape, DType d) {
  return as_double(shape.numel()) * static_cast<double>(size_of(d));
}

/// A decoder's dimensions.
struct Model {
  std::string_view name;
  std::int64_t width, hidden, heads, groups, head, vocabulary;
};
constexpr Model kModels[] = {{"qwen3-0.6b", 1024, 3072, 16, 8, 128, 151936},
                             {"llama-3.1-8b", 4096, 14336, 32, 8, 128, 128256}};

Model divided(const Model& m, int by) {
  return {m.name, m.width / by, m.hidden / by, m.heads, m.groups, m.head, m.vocabulary / by};
}

// What ends a half of a block and begins the next, as two stages: recomputation keeps the sum and makes only the norm
// again. Bytes per token: 6 C (x, branch, sum) and 4 C (x, y) forward, 8 C backward (dy, x, dx twice), in 16 bits.
void add_norms(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape rows{s.tokens, m.width};
  const std::string size = fmt::format("{}x{}", s.tokens, m.width);
  const Operand x{rows, s.dtype};
  cases.push_back({.name = "add/" + size,
                   .operands = {x, x, x},
                   .run = [](Ctx& ctx, Tensors t) { ops::add(ctx, {.y = t[0], .a = t[1], .b = t[2]}); },
                   .bytes = 3 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "rms_norm/" + size,
                   .operands = {x, f32({s.tokens}), x, f32({m.width})},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::rms_norm(ctx, {.y = t[0], .inv_rms = t[1], .x = t[2], .weight = t[3], .eps = 1e-6});
                       },
                   .bytes = 2 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "rms_norm_grad/" + size,
                   .operands = {x, f32({m.width}), x, x, f32({m.width}), f32({s.tokens}, Contents::positive)},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::rms_norm_grad(ctx, {.dx = accumulate(t[0]),
                                                  .dweight = store(t[1]),
                                                  .dy = t[2],
                                                  .x = t[3],
                                                  .weight = t[4],
                                                  .inv_rms = t[5]});
                       },
                   .bytes = 4 * bytes_of(rows, s.dtype)});
}

// Queries and keys in one case: 4 (q + k) bytes per token forward, 6 (q + k) backward, in 16 bits.
void add_rope(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape queries{s.tokens, m.heads, m.head}, keys{s.tokens, m.groups, m.head}, table{s.tokens, m.head / 2};
  const std::string size = fmt::format("{}x({}+{})x{}", s.tokens, m.heads, m.groups, m.head);
  const Operand q{queries, s.dtype}, k{keys, s.dtype}, at{{s.tokens}, DType::i32, Contents::places};
  const double once = bytes_of(queries, s.dtype) + bytes_of(keys, s.dtype);
  const Operand inv_q = f32({s.tokens, m.heads}, Contents::positive),
                inv_k = f32({s.tokens, m.groups}, Contents::positive);
  cases.push_back({.name = "qk_norm_rope/" + size,
                   .operands = {q, k, q, k, f32(table), f32(table), at, f32({m.head}), inv_q, inv_k},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         for (std::size_t i = 0; i < 2; ++i)
                           ops::rope(ctx, {.y = t[i],
                                           .x = t[2 + i],
                                           .cos = t[4],
                                           .sin = t[5],
                                           .positions = t[6],
                                           .weight = t[7],
                                           .inv_rms = t[8 + i],
                                           .eps = 1e-6});
                       },
                   .bytes = 2 * once});
  cases.push_back({.name = "qk_norm_rope_grad/" + size,
                   .operands = {q, k, q, k, q, k, f32(table), f32(table), at, f32({m.head}), inv_q, inv_k,
                                f32({m.head}), f32({m.head})},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         for (std::size_t i = 0; i < 2; ++i)
                           ops::rope_grad(ctx, {.dx = store(t[i]),
                                                .dy = t[2 + i],
                                                .cos = t[6],
                                                .sin = t[7],
                                                .positions = t[8],
                                                .x = t[4 + i],
                                                .weight = t[9],
                                                .inv_rms = t[10 + i],
                                                .dweight = store(t[12 + i])});
                       },
                   .bytes = 3 * once});
}

void add_swiglu(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape rows{s.tokens, m.hidden};
  const std::string size = fmt::format("{}x{}", s.tokens, m.hidden);
  const Operand x{rows, s.dtype};
  cases.push_back({.name = "swiglu/" + size,
                   .operands = {x, x, x},
                   .run = [](Ctx& ctx, Tensors t) { ops::glu(ctx, {.y = t[0], .gate = t[1], .up = t[2]}); },
                   .bytes = 3 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "swiglu_grad/" + size,
                   .operands = {x, x, x, x, x},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::glu_grad(
                             ctx, {.dgate = store(t[0]), .dup = store(t[1]), .dy = t[2], .gate = t[3], .up = t[4]});
                       },
                   .bytes = 5 * bytes_of(rows, s.dtype)});
}

void add_cross_entropy(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape logits{s.vocabulary_rows, m.vocabulary};
  cases.push_back(
      {.name = fmt::format("cross_entropy/{}x{}", logits[0], logits[1]),
       .operands = {{logits, s.dtype},
                    f32({logits[0]}),
                    {{logits[0]}, DType::i32, Contents::ids, m.vocabulary},
                    {{1}, DType::f64, Contents::given, 0, {1.0}}},
       .run =
           [](Ctx& ctx, Tensors t) {
             ops::cross_entropy(
                 ctx,
                 {.logits = t[0], .loss = t[1], .targets = t[2], .gradient = ops::Gradient::in_place, .scale = t[3]});
           },
       .bytes = 2 * bytes_of(logits, s.dtype)});
}

/// Documents of one batch and the heads over them.
struct Heads {
  std::int64_t count, groups, width;
};
std::vector<double> borders(const std::vector<std::int64_t>& lengths) {
  std::vector<double> cu{0};
  for (const std::int64_t l : lengths) cu.push_back(cu.back() + as_double(l));
  return cu;
}

// Two products over the visible half of the scores forward, five backward.
void add_attention(std::vector<Case>& cases, const Sizes& s, const Heads& n, const std::vector<std::int64_t>& lengths) {
  std::int64_t tokens = 0;
  double pairs = 0;
  for (const std::int64_t l : lengths) tokens += l, pairs += as_double(l) * as_double(l + 1) / 2;
  const double product = 2 * pairs * as_double(n.count * n.width);
  const std::string size = fmt::format("hd{}/{}{}", n.width, tokens, lengths.size() > 1 ? " packed" : "");
  const Operand q{{tokens, n.count, n.width}, s.dtype}, k{{tokens, n.groups, n.width}, s.dtype};
  const Operand cu{{static_cast<std::int64_t>(lengths.size()) + 1}, DType::i32, Contents::given, 0, borders(lengths)};
  const Operand lse = f32({n.count, tokens}, Contents::positive);
  const double scale = 1 / std::sqrt(as_double(n.width));
  cases.push_back(
      {.name = "attention/" + size,
       .operands = {q, lse, q, k, k, cu},
       .run =
           [scale](Ctx& ctx, Tensors t) {
             ops::attention(
                 ctx, {.y = t[0], .lse = t[1], .q = t[2], .k = t[3], .v = t[4], .cu_seqlens = t[5], .scale = scale});
           },
       .flops = 2 * product});
  cases.push_back({.name = "attention_grad/" + size,
                   .operands = {q, k, k, q, q, q, k, k, lse, cu},
                   .run =
                       [scale](Ctx& ctx, Tensors t) {
                         ops::attention_grad(ctx, {.dq = store(t[0]),
                                                   .dk = store(t[1]),
                                                   .dv = store(t[2]),
                                                   .dy = t[3],
                                                   .y = t[4],
                                                   .q = t[5],
                                                   .k = t[6],
                                                   .v = t[7],
                                                   .lse = t[8],
                                                   .cu_seqlens = t[9],
                                                   .scale = scale});
                       },
                   .flops = 5 * product});
}

void add_attentions(std::vector<Case>& cases, const Sizes& s) {
  for (const Heads& n : {Heads{16, 8, 64}, Heads{16, 8, 128}}) {
    for (const std::int64_t length : s.lengths) add_attention(cases, s, n, {length});
    // As many tokens in documents of a half, a quarter, an eighth, and eighths of the rest.
    const std::int64_t all = s.lengths.back(), part = all / 16;
    add_attention(cases, s, n, {all / 2, all / 4, all / 8, part, all - all / 2 - all / 4 - all / 8 - part});
  }
}

/// The three products of a linear layer with a weight [N, K]: y = x Wt, dx = dy W, dW += dyt x.
void add_products(std::vector<Case>& cases, const Sizes& s, const std::string& layer, const Shape& weight) {
  const std::int64_t N = weight[0], K = weight[1];
  const Operand x{{s.tokens, K}, s.dtype}, y{{s.tokens, N}, s.dtype}, w{weight, s.dtype};
  const double flops = 2 * as_double(s.tokens) * as_double(N) * as_double(K);
  const std::string name = fmt::format("gemm/{}/{}x{}x{}", layer, s.tokens, N, K);
  cases.push_back({.name = name + "/forward",
                   .operands = {y, x, w},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::gemm(ctx, {.c = store(t[0]), .a = t[1], .b = t[2], .transpose_b = Transpose::yes});
                       },
                   .flops = flops});
  cases.push_back({.name = name + "/dx",
                   .operands = {x, y, w},
                   .run = [](Ctx& ctx, Tensors t) { ops::gemm(ctx, {.c = store(t[0]), .a = t[1], .b = t[2]}); },
                   .flops = flops});
  cases.push_back({.name = name + "/dw",
                   .operands = {f32(weight), y, x},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::gemm(ctx, {.c = accumulate(t[0]), .a = t[1], .b = t[2], .transpose_a = Transpose::yes});
                       },
                   .flops = flops});
}

void add_linear_layers(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const std::int64_t q = m.heads * m.head, k = m.groups * m.head;
  const std::string name(m.name);
  add_products(cases, s, name + "/q", {q, m.width});
  add_products(cases, s, name + "/k", {k, m.width});
  add_products(cases, s, name + "/o", {m.width, q});
  add_products(cases, s, name + "/gate", {m.hidden, m.width});
  add_products(cases, s, name + "/down", {m.width, m.hidden});
  Sizes chunk = s;
  chunk.tokens = s.vocabulary_rows;
  add_products(cases, chunk, name + "/head", {m.vocabulary, m.width});
}

}  // namespace

Sizes sizes_for(Device device) {
  if (device.kind == DeviceKind::cuda)
    return {.dtype = DType::bf16,
            .tokens = 16384,
            .copied = std::int64_t{1} << 29,
            .product = 8192,
            .vocabulary_rows = 4096,
            .parameters = std::int64_t{1} << 27,
            .lengths = {2048, 4096, 8192, 16384}};
  return {.dtype = DType::f32,
          .tokens = 256,
          .copied = std::int64_t{1} << 24,
          .product = 1024,
          .vocabulary_rows = 64,
          .parameters = std::int64_t{1} << 22,
          .divisor = 2,
          .lengths = {256, 1024}};
}

Sizes small_sizes(Device device) {
  return {.dtype = sizes_for(device).dtype,
          .tokens = 16,
          .copied = 4096,
          .product = 32,
          .vocabulary_rows = 4,
          .parameters = 1000,
          .divisor = 32,
          .lengths = {32}};
}

Case copy_case(const Sizes& s) {
  const Operand x{{s.copied}, s.dtype};
  return {.name = fmt::format("copy/{}", s.copied),
          .operands = {x, x},
          .run = [](Ctx& ctx, Tensors t) { ops::copy(ctx, {.y = store(t[0]), .x = t[1]}); },
          .bytes = 2 * bytes_of(x.shape, s.dtype)};
}

Case product_case(const Sizes& s) {
  std::vector<Case> cases;
  Sizes square = s;
  square.tokens = s.product;
  add_products(cases, square, "peak", {s.product, s.product});
  return cases.front();
}

std::vector<Case> op_cases(const Sizes& s) {
  std::vector<Case> cases;
  for (const Model& whole : kModels) {
    const Model m = divided(whole, s.divisor);
    add_norms(cases, s, m);
    add_rope(cases, s, m);
    add_swiglu(cases, s, m);
    add_cross_entropy(cases, s, m);
    add_quantized(cases, s, {m.hidden, m.width});
  }
  add_optimizers(cases, s);
  add_attentions(cases, s);
  for (const Model& whole : kModels) add_linear_layers(cases, s, divided(whole, s.divisor));
  return cases;
}

}  // namespace qtrain::bench
