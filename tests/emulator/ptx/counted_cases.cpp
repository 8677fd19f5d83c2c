#include "tests/emulator/ptx/counted_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/fp8.h"
#include "kernels/grouped_gemm.h"

namespace qtrain::testing {
namespace {

using bench::Argument;
using bench::Case;
using bench::Contents;
using bench::Operand;

Operand half(const Shape& shape) {
  return {shape, DType::bf16};
}
Operand places(std::vector<double> values) {
  return {{static_cast<std::int64_t>(values.size())}, DType::i32, Contents::given, 0, std::move(values)};
}

/// Decoding: two sequences with a token each, against their caches of 300 and 40 entries, which are appended to.
std::vector<Case> decoding() {
  constexpr std::int64_t kTokens = 2, kCapacity = 320, kHeads = 16, kGroups = 8, kWidth = 128;
  const Operand q = half({kTokens, kHeads, kWidth}), k = half({kTokens, kGroups, kWidth}),
                cache = half({kTokens, kCapacity, kGroups, kWidth}), rows = places({0, 1}),
                positions = places({299, 39});
  const auto append = [](Ctx& ctx, std::span<const Argument> a) {
    ops::cache_append(ctx, {.cache = a[0].tensor, .x = a[1].tensor, .rows = a[2].tensor, .positions = a[3].tensor});
  };
  const auto attend = [](Ctx& ctx, std::span<const Argument> a) {
    ops::cached_attention(ctx, {.y = a[0].tensor,
                                .q = a[1].tensor,
                                .keys = a[2].tensor,
                                .values = a[3].tensor,
                                .rows = a[4].tensor,
                                .positions = a[5].tensor,
                                .scale = 1 / std::sqrt(static_cast<double>(kWidth))});
  };
  return {{.name = "cache_append/2x8x128", .operands = {cache, k, rows, positions}, .prepare = [=] { return append; }},
          {.name = "cached_attention/(300+40)x16x128",
           .operands = {q, q, cache, cache, rows, positions},
           .prepare = [=] { return attend; }}};
}

/// The embedding gradient of more tokens than in the small sizes of `qtrain bench`. Every 16th token is the same, as in
/// text.
Case embedding_grad_of_text() {
  constexpr std::int64_t kTokens = 2048, kVocabulary = 8192, kWidth = 64;
  std::vector<double> tokens;
  for (std::int64_t t = 0; t < kTokens; ++t)
    tokens.push_back(static_cast<double>(t % 16 == 0 ? 11 : t * t % 4093 * 2 % kVocabulary));
  return {.name = fmt::format("embedding_grad/{}x{}x{}", kTokens, kVocabulary, kWidth),
          .operands = {bench::added_to(bench::f32({kVocabulary, kWidth})), half({kTokens, kWidth}), places(tokens)},
          .prepare = bench::op("embedding_grad")};
}

/// Adafactor for a matrix; the small sizes of `qtrain bench` have one of 8 columns.
Case adafactor_of(const Shape& matrix) {
  const Operand x{matrix, DType::f32}, row{{matrix[0]}, DType::f32, Contents::positive},
      column{{matrix[1]}, DType::f32, Contents::positive},
      hyperparameters{{3}, DType::f64, Contents::given, 0, {1e-6, 0.1, 0.001}},
      factor{{2}, DType::f64, Contents::given, 0, {1.0, 1.0}};
  return {.name = fmt::format("adafactor/{}x{}", matrix[0], matrix[1]),
          .operands = {x, row, column, x, hyperparameters, factor},
          .prepare = bench::op("adafactor")};
}

/// AdamW that also writes the 16-bit copies of the weights.
Case adamw_with_copy() {
  const Operand x{{65536}, DType::f32}, v{{65536}, DType::f32, Contents::positive},
      copy = half({65536}), hyperparameters{{3}, DType::f64, Contents::given, 0, {1e-3, 0.1, 0.001}},
      factor{{2}, DType::f64, Contents::given, 0, {1.0, 1.0}};
  const auto update = [](Ctx& ctx, std::span<const Argument> a) {
    ops::adamw(ctx, {.param = a[0].tensor,
                     .m = a[1].tensor,
                     .v = a[2].tensor,
                     .grad = a[3].tensor,
                     .hyperparameters = a[4].tensor,
                     .factor = a[5].tensor,
                     .copy = a[6].tensor});
  };
  return {.name = "adamw_with_copy/65536", .operands = {x, x, v, x, hyperparameters, factor, copy}, .prepare = [=] {
            return update;
          }};
}

Tensor in_fp8(Tensor codes) {
  codes.dtype = DType::f8_e4m3;
  return codes;
}
void transpose_codes(Ctx& ctx, std::span<const Argument> a) {
  ops::transpose_fp8(ctx, {.y = in_fp8(a[0].tensor), .x = in_fp8(a[1].tensor)});
}
void expand_codes(Ctx& ctx, std::span<const Argument> a) {
  const Tensor codes = in_fp8(a[1].tensor);
  ops::expand_fp8(ctx,
                  {.y = a[0].tensor, .codes = codes, .scales = a[2].tensor.reshaped({1, 1}), .block = codes.shape});
}

/// The gradients of an adapter of a layer with 1,024 outputs: the rows of a block on a GPU, and four blocks.
Case adapter_gradients() {
  constexpr std::int64_t kTokens = 640, kOutputs = 1024, kRank = 16;
  const Operand dy = half({kTokens, kOutputs}), u = half({kTokens, kRank}), b = bench::f32({kOutputs, kRank});
  return {.name = fmt::format("adapter_grads/{}x{}x{}", kTokens, kOutputs, kRank),
          .operands = {dy, b, u, u, b},
          .prepare = bench::op("adapter_grads")};
}

/// Encoding the operands of a GEMM in FP8: a weight as it is, and a gradient transposed, with a scale each; rows,
/// columns and weights with scales for blocks; and stored codes of a weight.
std::vector<Case> fp8_operands() {
  constexpr std::int64_t kRows = 128, kWidth = 256;
  const auto encode = [](DType format, ops::Transpose transpose) {
    return [=](Ctx& ctx, std::span<const Argument> a) {
      Tensor codes = a[0].tensor;
      codes.dtype = format;
      ops::to_fp8(ctx, {.codes = codes, .scale = a[1].tensor, .x = a[2].tensor, .transpose = transpose});
    };
  };
  const auto encode_blocks = [](ops::Fp8Block block, ops::Transpose transpose) {
    return [=](Ctx& ctx, std::span<const Argument> a) {
      Tensor codes = a[0].tensor;
      codes.dtype = DType::f8_e4m3;
      ops::to_fp8(ctx,
                  {.codes = codes, .scale = a[1].tensor, .x = a[2].tensor, .transpose = transpose, .block = block});
    };
  };
  const auto scales = [](ops::Fp8Block block, std::int64_t rows, std::int64_t row) {
    return bench::f32(ops::fp8_scales(block, rows, row));
  };
  const Operand x = half({kRows, kWidth}), scale = bench::f32({1});
  const auto codes = [](const Shape& shape) { return Operand{shape, DType::u8}; };
  return {{.name = "to_fp8/128x256",
           .operands = {codes({kRows, kWidth}), scale, x},
           .prepare = [=] { return encode(DType::f8_e4m3, ops::Transpose::no); }},
          {.name = "to_fp8/128x256 transposed",
           .operands = {codes({kWidth, kRows}), scale, x},
           .prepare = [=] { return encode(DType::f8_e5m2, ops::Transpose::yes); }},
          {.name = "to_fp8/128x256 vectors",
           .operands = {codes({kRows, kWidth}), scales(ops::Fp8Block::vector, kRows, kWidth), x},
           .prepare = [=] { return encode_blocks(ops::Fp8Block::vector, ops::Transpose::no); }},
          {.name = "to_fp8/128x256 vectors transposed",
           .operands = {codes({kWidth, kRows}), scales(ops::Fp8Block::vector, kWidth, kRows), x},
           .prepare = [=] { return encode_blocks(ops::Fp8Block::vector, ops::Transpose::yes); }},
          {.name = "to_fp8/128x256 squares",
           .operands = {codes({kRows, kWidth}), scales(ops::Fp8Block::square, kRows, kWidth), x},
           .prepare = [=] { return encode_blocks(ops::Fp8Block::square, ops::Transpose::no); }},
          {.name = "to_fp8/128x256 squares transposed",
           .operands = {codes({kWidth, kRows}), scales(ops::Fp8Block::square, kWidth, kRows), x},
           .prepare = [=] { return encode_blocks(ops::Fp8Block::square, ops::Transpose::yes); }},
          {.name = "transpose_fp8/128x256",
           .operands = {codes({kWidth, kRows}), codes({kRows, kWidth})},
           .prepare = [] { return transpose_codes; }},
          {.name = "expand_fp8/128x256", .operands = {x, codes({kRows, kWidth}), scale}, .prepare = [] {
             return expand_codes;
           }}};
}

}  // namespace

std::vector<Case> attention_of(std::int64_t width) {
  constexpr std::int64_t kTokens = 150;
  const Operand q = half({kTokens, 2, width}), k = half({kTokens, 1, width}), cu = places({0, 130, kTokens});
  const Operand lse{{2, kTokens}, DType::f32, Contents::positive};
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const Operand memory{{static_cast<std::int64_t>(ops::attention_sum_bytes(kTokens, width) / 2)}, DType::f32};
  return {{.name = "attention", .operands = {q, lse, q, k, k, cu}, .prepare = bench::op("attention", {scale})},
          {.name = "attention_grad",
           .operands = {q, k, k, q, q, q, k, k, lse, cu},
           .prepare = bench::op("attention_grad", {scale})},
          {.name = "attention_grad with memory",
           .operands = {q, k, k, q, q, q, k, k, lse, cu, memory},
           .prepare = bench::op("attention_grad", {scale})}};
}

std::vector<Case> grouped_gemms() {
  constexpr std::int64_t kRows = 128, kIn = 96, kOut = 160, kExperts = 3;
  const Operand x = half({kRows, kIn}), y = half({kRows, kOut}), w = half({kExperts, kOut, kIn}),
                offsets = places({0, 70, 70, kRows});
  const auto forward = [](Ctx& ctx, std::span<const Argument> a) {
    ops::grouped_gemm(ctx, {.c = store(a[0].tensor),
                            .a = a[1].tensor,
                            .b = a[2].tensor,
                            .offsets = a[3].tensor,
                            .transpose_b = ops::Transpose::yes});
  };
  const auto dx = [](Ctx& ctx, std::span<const Argument> a) {
    ops::grouped_gemm(ctx, {.c = store(a[0].tensor), .a = a[1].tensor, .b = a[2].tensor, .offsets = a[3].tensor});
  };
  const auto dw = [](Ctx& ctx, std::span<const Argument> a) {
    ops::grouped_gemm_grad(ctx, {.c = store(a[0].tensor), .a = a[1].tensor, .b = a[2].tensor, .offsets = a[3].tensor});
  };
  const std::string name = fmt::format("grouped_gemm/{}x{}x{}", kRows, kOut, kIn);
  return {{.name = name + "/forward", .operands = {y, x, w, offsets}, .prepare = [=] { return forward; }},
          {.name = name + "/dx", .operands = {x, y, w, offsets}, .prepare = [=] { return dx; }},
          {.name = name + "/dw", .operands = {w, y, x, offsets}, .prepare = [=] { return dw; }}};
}

std::vector<Case> all_counted_cases() {
  bench::Sizes sizes{.dtype = DType::bf16,
                     .tokens = 32,
                     .copied = 65536,
                     .gemm = 32,
                     .vocabulary_rows = 2,
                     .parameters = 65536,
                     .models = {{"half of qwen3-0.6b", 512, 1536, 16, 8, 128, 75968}},
                     .lengths = {128}};
  std::vector<Case> cases = bench::all_cases(sizes);
  std::erase_if(cases, [](const Case& c) { return c.name.starts_with("gemm/") || c.name.starts_with("adafactor/"); });
  cases.insert(cases.begin(), bench::copy_case(sizes));
  // With twice the tokens, to separate the work on tiles from the work before and after them.
  sizes.lengths = {256};
  const std::set<std::string> longer{"attention/hd64/256", "attention_grad/hd64/256", "attention/hd128/256",
                                     "attention_grad/hd128/256"};
  for (Case& c : bench::all_cases(sizes))
    if (longer.contains(c.name)) cases.push_back(std::move(c));
  cases.push_back(embedding_grad_of_text());
  cases.push_back(adafactor_of({64, 1024}));
  cases.push_back(adamw_with_copy());
  cases.push_back(adapter_gradients());
  for (const auto& more : {decoding(), grouped_gemms(), fp8_operands()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace qtrain::testing
