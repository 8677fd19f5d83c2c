#include <fmt/format.h>

#include "app/bench/cases.h"
#include "kernels/adafactor.h"
#include "kernels/adamw.h"
#include "kernels/dynamic_map.h"
#include "kernels/lion.h"
#include "kernels/muon.h"
#include "kernels/sgd.h"

namespace qtrain::bench {
namespace {

using Tensors = std::span<const Tensor>;

/// lr, and what AdamW and others divide by.
const Operand kHyperparameters{{3}, DType::f64, Contents::given, 0, {1e-6, 0.1, 0.001}};
const Operand kFactor{{2}, DType::f64, Contents::given, 0, {1.0, 1.0}};

Operand table(Signedness sign) {
  const ops::CodeTable codes = ops::make_code_table(dynamic_map(sign));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&codes);
  return {{static_cast<std::int64_t>(sizeof(codes))}, DType::u8, Contents::given, 0, {bytes, bytes + sizeof(codes)}};
}

/// Bytes of a value's code, read and written, with its share of the scale.
constexpr double kCodedBytes = 2 * (1 + 4.0 / static_cast<double>(ops::kCodeBlock));

// 4 bytes of the gradient, 8 of each value that is read and written; half of that in bf16.
void add_adamw(std::vector<Case>& cases, std::int64_t n) {
  const Operand x = f32({n}), squares = f32({n}, Contents::positive);
  const auto size = static_cast<double>(n);
  cases.push_back({.name = fmt::format("adamw/{}", n),
                   .operands = {x, x, squares, x, kHyperparameters, kFactor},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::adamw(ctx, {.param = t[0],
                                          .m = t[1],
                                          .v = t[2],
                                          .grad = t[3],
                                          .hyperparameters = t[4],
                                          .factor = t[5],
                                          .decay = 0.01});
                       },
                   .bytes = 28 * size});
  const Operand half{{n}, DType::bf16}, half_squares{{n}, DType::bf16, Contents::positive};
  const Operand with_step{{4}, DType::f64, Contents::given, 0, {1e-6, 0.1, 0.001, 1.0}};
  cases.push_back({.name = fmt::format("adamw_bf16/{}", n),
                   .operands = {half, half, half_squares, x, with_step, kFactor},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::adamw_bf16(ctx, {.param = t[0],
                                               .m = t[1],
                                               .v = t[2],
                                               .grad = t[3],
                                               .hyperparameters = t[4],
                                               .factor = t[5],
                                               .decay = 0.01});
                       },
                   .bytes = 16 * size});
}

void add_one_state(std::vector<Case>& cases, std::int64_t n) {
  const Operand x = f32({n});
  const auto size = static_cast<double>(n);
  cases.push_back(
      {.name = fmt::format("lion/{}", n),
       .operands = {x, x, x, kHyperparameters, kFactor},
       .run =
           [](Ctx& ctx, Tensors t) {
             ops::lion(
                 ctx, {.param = t[0], .m = t[1], .grad = t[2], .hyperparameters = t[3], .factor = t[4], .decay = 0.01});
           },
       .bytes = 20 * size});
  cases.push_back({.name = fmt::format("sgd_momentum/{}", n),
                   .operands = {x, x, x, kHyperparameters, kFactor},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::sgd(ctx, {.param = t[0],
                                        .momentum_buffer = t[1],
                                        .grad = t[2],
                                        .hyperparameters = t[3],
                                        .factor = t[4],
                                        .momentum = 0.9});
                       },
                   .bytes = 20 * size});
}

void add_coded(std::vector<Case>& cases, std::int64_t n) {
  const Operand x = f32({n}), codes{{n}, DType::u8, Contents::ids, 256},
                absmax = f32({(n + ops::kCodeBlock - 1) / ops::kCodeBlock}, Contents::positive);
  const Operand with_sign = table(Signedness::with_sign), without = table(Signedness::without_sign);
  const auto size = static_cast<double>(n);
  cases.push_back({.name = fmt::format("adamw_8bit/{}", n),
                   .operands = {x, codes, absmax, codes, absmax, x, kHyperparameters, kFactor, with_sign, without},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::adamw_8bit(ctx, {.param = t[0],
                                               .m = {t[1], t[2], t[8]},
                                               .v = {t[3], t[4], t[9]},
                                               .grad = t[5],
                                               .hyperparameters = t[6],
                                               .factor = t[7],
                                               .decay = 0.01});
                       },
                   .bytes = (12 + 2 * kCodedBytes) * size});
  cases.push_back({.name = fmt::format("lion_8bit/{}", n),
                   .operands = {x, codes, absmax, x, kHyperparameters, kFactor, with_sign},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::lion_8bit(ctx, {.param = t[0],
                                              .m = {t[1], t[2], t[6]},
                                              .grad = t[3],
                                              .hyperparameters = t[4],
                                              .factor = t[5],
                                              .decay = 0.01});
                       },
                   .bytes = (12 + kCodedBytes) * size});
}

// Of a matrix. Adafactor needs sums of the gradient before it can begin, so it reads it more than once.
void add_of_matrices(std::vector<Case>& cases, const Shape& matrix) {
  const Operand x = f32(matrix), row = f32({matrix[0]}, Contents::positive),
                column = f32({matrix[1]}, Contents::positive);
  const Operand half{matrix, DType::bf16};
  const std::string size = fmt::format("{}x{}", matrix[0], matrix[1]);
  const auto n = static_cast<double>(matrix.numel());
  cases.push_back(
      {.name = "adafactor/" + size,
       .operands = {x, row, column, x, kHyperparameters, kFactor},
       .run =
           [](Ctx& ctx, Tensors t) {
             ops::adafactor(
                 ctx,
                 {.param = t[0], .row = t[1], .column = t[2], .grad = t[3], .hyperparameters = t[4], .factor = t[5]});
           },
       .bytes = 12 * n});
  cases.push_back({.name = "muon_momentum/" + size,
                   .operands = {x, half, x, kFactor},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::muon_momentum(ctx, {.momentum_buffer = t[0], .y = t[1], .grad = t[2], .factor = t[3]});
                       },
                   .bytes = 14 * n});
  cases.push_back({.name = "muon_apply/" + size,
                   .operands = {x, half, kHyperparameters, kFactor},
                   .run =
                       [](Ctx& ctx, Tensors t) {
                         ops::muon_apply(
                             ctx, {.param = t[0], .x = t[1], .hyperparameters = t[2], .factor = t[3], .decay = 0.01});
                       },
                   .bytes = 10 * n});
}

}  // namespace

void add_optimizers(std::vector<Case>& cases, const Sizes& s) {
  constexpr std::int64_t kWidth = 1024, kNarrow = 8;
  const std::int64_t width = s.parameters >= kWidth * kWidth ? kWidth : kNarrow;
  add_adamw(cases, s.parameters);
  add_one_state(cases, s.parameters);
  add_coded(cases, s.parameters);
  add_of_matrices(cases, {s.parameters / width, width});
}

}  // namespace qtrain::bench
