#include <fmt/format.h>

#include <cmath>
#include <set>

#include "bench/cases/cases.h"
#include "kernels/attention.h"

namespace qtrain::bench {
namespace {

double as_double(std::int64_t n) {
  return static_cast<double>(n);
}
double bytes_of(const Shape& shape, DType d) {
  return as_double(shape.numel()) * static_cast<double>(size_of(d));
}

constexpr double kEps = 1e-6;

Model divided(Model m, int by) {
  m.width /= by;
  m.hidden /= by;
  m.vocabulary /= by;
  return m;
}
/// A model size that CPUs train, and two that GPUs train.
const Model kSmall{"smollm2-135m", 576, 1536, 9, 3, 64, 49152};
const Model kMiddle{"qwen3-0.6b", 1024, 3072, 16, 8, 128, 151936};
const Model kLarge{"llama-3.1-8b", 4096, 14336, 32, 8, 128, 128256};

// The end of one half of a block and the start of the next, as two stages: recomputation keeps the sum and recomputes
// only the norm. Bytes per token: 6 C (x, branch, sum) and 4 C (x, y) forward, 8 C backward (dy, x, dx twice), in 16
// bits.
void add_norms(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape rows{s.tokens, m.width};
  const std::string size = fmt::format("{}x{}", s.tokens, m.width);
  const Operand x{rows, s.dtype};
  cases.push_back(
      {.name = "add/" + size, .operands = {x, x, x}, .prepare = op("add"), .bytes = 3 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "rms_norm/" + size,
                   .operands = {x, f32({s.tokens}), x, f32({m.width})},
                   .prepare = op("rms_norm", {kEps}),
                   .bytes = 2 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "rms_norm_grad/" + size,
                   .operands = {added_to(x), f32({m.width}), x, x, f32({m.width}), f32({s.tokens}, Contents::positive)},
                   .prepare = op("rms_norm_grad"),
                   .bytes = 4 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "dropout/" + size,
                   .operands = {x, x, {{1}, DType::i64, Contents::given, 0, {1}}},
                   .prepare = op("dropout", {0.1}),
                   .bytes = 2 * bytes_of(rows, s.dtype)});
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
                   .prepare = op("rope", {kEps}),
                   .bytes = 2 * once});
  cases.push_back({.name = "qk_norm_rope_grad/" + size,
                   .operands = {q, k, q, k, q, k, f32(table), f32(table), at, f32({m.head}), inv_q, inv_k,
                                f32({m.head}), f32({m.head})},
                   .prepare = op("rope_grad"),
                   .bytes = 3 * once});
}

// Queries, keys and values of one projection: each element is read and written once, and three quarters of a head are
// rotated.
void add_split_rope(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape queries{s.tokens, m.heads, m.head}, keys{s.tokens, m.groups, m.head}, table{s.tokens, m.head * 3 / 8};
  const Shape joined{s.tokens, (m.heads + 2 * m.groups) * m.head};
  const std::string size = fmt::format("{}x({}+2*{})x{}", s.tokens, m.heads, m.groups, m.head);
  const Operand q{queries, s.dtype}, k{keys, s.dtype}, all{joined, s.dtype};
  const Operand at{{s.tokens}, DType::i32, Contents::places};
  cases.push_back({.name = "split_rope/" + size,
                   .operands = {q, k, k, all, f32(table), f32(table), at},
                   .prepare = op("split_rope"),
                   .bytes = 2 * bytes_of(joined, s.dtype)});
  cases.push_back({.name = "split_rope_grad/" + size,
                   .operands = {all, q, k, k, f32(table), f32(table), at},
                   .prepare = op("split_rope_grad"),
                   .bytes = 2 * bytes_of(joined, s.dtype)});
}

// Gate and up in one tensor, as halves and as clamped pairs.
void add_packed_glu(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape rows{s.tokens, m.hidden}, both{s.tokens, 2 * m.hidden};
  const Operand y{rows, s.dtype}, x{both, s.dtype};
  for (const std::string name : {"packed_glu", "clamped_glu"}) {
    const std::string size = fmt::format("/{}x{}", s.tokens, m.hidden);
    cases.push_back(
        {.name = name + size, .operands = {y, x}, .prepare = op(name), .bytes = 3 * bytes_of(rows, s.dtype)});
    cases.push_back({.name = name + "_grad" + size,
                     .operands = {x, y, x},
                     .prepare = op(name + "_grad"),
                     .bytes = 5 * bytes_of(rows, s.dtype)});
  }
}

void add_swiglu(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape rows{s.tokens, m.hidden};
  const std::string size = fmt::format("{}x{}", s.tokens, m.hidden);
  const Operand x{rows, s.dtype};
  cases.push_back(
      {.name = "swiglu/" + size, .operands = {x, x, x}, .prepare = op("swiglu"), .bytes = 3 * bytes_of(rows, s.dtype)});
  cases.push_back({.name = "swiglu_grad/" + size,
                   .operands = {x, x, x, x, x},
                   .prepare = op("swiglu_grad"),
                   .bytes = 5 * bytes_of(rows, s.dtype)});
}

// The gradients of an adapter of rank 16: reads dy once, where this does not take two GEMMs.
void add_adapter(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  constexpr std::int64_t kRank = 16;
  const Operand dy{{s.tokens, m.width}, s.dtype}, u{{s.tokens, kRank}, s.dtype}, b = f32({m.width, kRank});
  cases.push_back({.name = fmt::format("adapter_grads/{}x{}x{}", s.tokens, m.width, kRank),
                   .operands = {dy, b, u, u, b},
                   .prepare = op("adapter_grads"),
                   .bytes = bytes_of(dy.shape, s.dtype)});
}

// The loss with the gradient in place of the logits, and the gradient of the embedding: reads dy once, and reads and
// writes the rows of the table.
void add_vocabulary(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  const Shape logits{s.vocabulary_rows, m.vocabulary}, rows{s.tokens, m.width};
  cases.push_back({.name = fmt::format("cross_entropy/{}x{}", logits[0], logits[1]),
                   .operands = {{logits, s.dtype},
                                f32({logits[0]}),
                                {{logits[0]}, DType::i32, Contents::ids, m.vocabulary},
                                {{1}, DType::f64, Contents::given, 0, {1.0}}},
                   .prepare = op("cross_entropy"),
                   .bytes = 2 * bytes_of(logits, s.dtype)});
  cases.push_back({.name = fmt::format("embedding_grad/{}x{}x{}", s.tokens, m.vocabulary, m.width),
                   .operands = {added_to(f32({m.vocabulary, m.width})),
                                {rows, s.dtype},
                                {{s.tokens}, DType::i32, Contents::ids, m.vocabulary}},
                   .prepare = op("embedding_grad"),
                   .bytes = bytes_of(rows, s.dtype) + 2 * bytes_of(rows, DType::f32)});
}

/// Attention heads.
struct Heads {
  std::int64_t count, groups, width;
};
std::vector<double> borders(const std::vector<std::int64_t>& lengths) {
  std::vector<double> cu{0};
  for (const std::int64_t l : lengths) cu.push_back(cu.back() + as_double(l));
  return cu;
}

// Two GEMMs over the visible half of the scores in the forward pass, five in the backward pass.
void add_attention(std::vector<Case>& cases, const Sizes& s, const Heads& n, const std::vector<std::int64_t>& lengths) {
  std::int64_t tokens = 0;
  double pairs = 0;
  for (const std::int64_t l : lengths) tokens += l, pairs += as_double(l) * as_double(l + 1) / 2;
  const double gemm = 2 * pairs * as_double(n.count * n.width);
  const std::string size = fmt::format("hd{}/{}{}", n.width, tokens, lengths.size() > 1 ? " packed" : "");
  const Operand q{{tokens, n.count, n.width}, s.dtype}, k{{tokens, n.groups, n.width}, s.dtype};
  const Operand cu{{static_cast<std::int64_t>(lengths.size()) + 1}, DType::i32, Contents::given, 0, borders(lengths)};
  const Operand lse = f32({n.count, tokens}, Contents::positive);
  const double scale = 1 / std::sqrt(as_double(n.width));
  cases.push_back({.name = "attention/" + size,
                   .operands = {q, lse, q, k, k, cu},
                   .prepare = op("attention", {scale}),
                   .flops = 2 * gemm});
  const Operand sinks = f32({n.count});
  cases.push_back({.name = "attention_sink_grad/" + size,
                   .operands = {sinks, q, q, lse, sinks},
                   .prepare = op("attention_sink_grad"),
                   .bytes = 2 * bytes_of(q.shape, s.dtype)});
  const Operand memory = f32({n.count * static_cast<std::int64_t>(ops::attention_sum_bytes(tokens, n.width) / 4)});
  cases.push_back({.name = "attention_grad/" + size,
                   .operands = {q, k, k, q, q, q, k, k, lse, cu, memory},
                   .prepare = op("attention_grad", {scale}),
                   .flops = 5 * gemm});
}

void add_attentions(std::vector<Case>& cases, const Sizes& s) {
  for (const Heads& n : {Heads{16, 8, 64}, Heads{16, 8, 128}}) {
    for (const std::int64_t length : s.lengths) add_attention(cases, s, n, {length});
    // The same number of tokens, packed as documents of half, a quarter, an eighth, a sixteenth of them, and the rest.
    const std::int64_t all = s.lengths.back(), part = all / 16;
    add_attention(cases, s, n, {all / 2, all / 4, all / 8, part, all - all / 2 - all / 4 - all / 8 - part});
  }
}

/// The three GEMMs of a linear layer with a weight [N, K]: y = x W^T, dx = dy W, dW += dy^T x.
void add_gemms(std::vector<Case>& cases, const Sizes& s, const std::string& layer, const Shape& weight) {
  const std::int64_t N = weight[0], K = weight[1];
  const Operand x{{s.tokens, K}, s.dtype}, y{{s.tokens, N}, s.dtype}, w{weight, s.dtype};
  const double flops = 2 * as_double(s.tokens) * as_double(N) * as_double(K);
  const std::string name = fmt::format("gemm/{}/{}x{}x{}", layer, s.tokens, N, K);
  cases.push_back({.name = name + "/forward", .operands = {y, x, w}, .prepare = op("gemm", {0, 1}), .flops = flops});
  cases.push_back({.name = name + "/dx", .operands = {x, y, w}, .prepare = op("gemm", {0, 0}), .flops = flops});
  cases.push_back(
      {.name = name + "/dw", .operands = {added_to(f32(weight)), y, x}, .prepare = op("gemm", {1, 0}), .flops = flops});
}

/// GEMMs with a few rows, as in decoding: bound by reading the weight.
void add_decoding(std::vector<Case>& cases, const Sizes& s, const std::string& layer, const Shape& weight) {
  for (const std::int64_t rows : s.decoded)
    for (const DType type : {DType::f32, DType::bf16})
      cases.push_back({.name = fmt::format("decode/{}/{}x{}x{}/{}", layer, rows, weight[0], weight[1], name_of(type)),
                       .operands = {f32({rows, weight[0]}), f32({rows, weight[1]}), {weight, type}},
                       .prepare = op("gemm", {0, 1}),
                       .bytes = bytes_of(weight, type)});
}

void add_linear_layers(std::vector<Case>& cases, const Sizes& s, const Model& m) {
  constexpr std::int64_t kRank = 16;
  const std::int64_t q = m.heads * m.head, k = m.groups * m.head;
  add_gemms(cases, s, m.name + "/q", {q, m.width});
  add_gemms(cases, s, m.name + "/k", {k, m.width});
  add_gemms(cases, s, m.name + "/o", {m.width, q});
  add_gemms(cases, s, m.name + "/gate", {m.hidden, m.width});
  add_gemms(cases, s, m.name + "/down", {m.width, m.hidden});
  add_gemms(cases, s, m.name + "/lora_a", {kRank, m.width});
  add_gemms(cases, s, m.name + "/lora_b", {m.width, kRank});
  Sizes chunk = s;
  chunk.tokens = s.vocabulary_rows;
  add_gemms(cases, chunk, m.name + "/head", {m.vocabulary, m.width});
  add_decoding(cases, s, m.name + "/gate", {m.hidden, m.width});
  add_decoding(cases, s, m.name + "/head", {m.vocabulary, m.width});
}

}  // namespace

std::function<Run()> op(std::string name, std::vector<double> numbers) {
  return [name = std::move(name), numbers = std::move(numbers)]() -> Run {
    return [name, numbers](Ctx& ctx, std::span<const Argument> tensors) {
      call_op(ctx, {.op = name, .tensors = tensors, .numbers = numbers});
    };
  };
}

Sizes sizes_for(Device device) {
  if (device.kind == DeviceKind::cuda)
    return {.dtype = DType::bf16,
            .tokens = 16384,
            .copied = std::int64_t{1} << 29,
            .gemm = 8192,
            .vocabulary_rows = 4096,
            .parameters = std::int64_t{1} << 27,
            .models = {kMiddle, kLarge},
            .lengths = {2048, 4096, 8192, 16384}};
  return {.dtype = DType::f32,
          .tokens = 256,
          .copied = std::int64_t{1} << 24,
          .gemm = 1024,
          .vocabulary_rows = 64,
          .parameters = std::int64_t{1} << 22,
          .models = {kSmall, divided(kMiddle, 2), divided(kLarge, 2)},
          .lengths = {256, 1024},
          .decoded = {1, 8},
          .text_rows = 10'000};
}

Sizes small_sizes(Device device) {
  const bool host = device.kind == DeviceKind::cpu;
  return {.dtype = sizes_for(device).dtype,
          .tokens = 16,
          .copied = 4096,
          .gemm = 32,
          .vocabulary_rows = 4,
          .parameters = 1000,
          .models = {divided(kMiddle, 32), divided(kLarge, 32)},
          .lengths = {32},
          .decoded = host ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{},
          .text_rows = host ? 20 : 0};
}

Sizes counted_sizes() {
  return {.dtype = DType::f32,
          .tokens = 64,
          .copied = std::int64_t{1} << 16,
          .gemm = 192,
          .vocabulary_rows = 8,
          .parameters = std::int64_t{1} << 18,
          .models = {divided(kSmall, 3)},
          .lengths = {128},
          .decoded = {1},
          .text_rows = 500};
}

Case copy_case(const Sizes& s) {
  const Operand x{{s.copied}, s.dtype};
  return {.name = fmt::format("copy/{}", s.copied),
          .operands = {x, x},
          .prepare = op("copy"),
          .bytes = 2 * bytes_of(x.shape, s.dtype)};
}

Case gemm_case(const Sizes& s) {
  std::vector<Case> cases;
  Sizes square = s;
  square.tokens = s.gemm;
  add_gemms(cases, square, "peak", {s.gemm, s.gemm});
  return cases.front();
}

std::vector<Case> all_cases(const Sizes& s) {
  std::vector<Case> cases;
  for (const Model& m : s.models) {
    add_norms(cases, s, m);
    add_rope(cases, s, m);
    add_split_rope(cases, s, m);
    add_swiglu(cases, s, m);
    add_packed_glu(cases, s, m);
    add_adapter(cases, s, m);
    add_vocabulary(cases, s, m);
    add_quantized(cases, s, {m.hidden, m.width});
  }
  add_optimizers(cases, s);
  add_attentions(cases, s);
  for (const Model& m : s.models) add_linear_layers(cases, s, m);
  add_data(cases, s);
  std::set<std::string> names;  // models share some shapes
  std::erase_if(cases, [&](const Case& c) { return !names.insert(c.name).second; });
  return cases;
}

}  // namespace qtrain::bench
