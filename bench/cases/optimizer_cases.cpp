#include <fmt/format.h>

#include "bench/cases/cases.h"
#include "kernels/code_table.h"

namespace qtrain::bench {
namespace {

constexpr double kDecay = 0.01;
/// lr, then the bias corrections of AdamW and others.
const Operand kHyperparameters{{3}, DType::f64, Contents::given, 0, {1e-6, 0.1, 0.001}};
const Operand kFactor{{2}, DType::f64, Contents::given, 0, {1.0, 1.0}};

/// Bytes to read and write a value's code, including its share of the scale.
constexpr double kCodedBytes = 2 * (1 + 4.0 / static_cast<double>(ops::kCodeBlock));

// 4 bytes to read the gradient, 8 to read and write each value; half as much in bf16.
void add_adamw(std::vector<Case>& cases, std::int64_t n) {
  const Operand x = f32({n}), squares = f32({n}, Contents::positive);
  const auto size = static_cast<double>(n);
  cases.push_back({.name = fmt::format("adamw/{}", n),
                   .operands = {x, x, squares, x, kHyperparameters, kFactor},
                   .prepare = op("adamw", {kDecay}),
                   .bytes = 28 * size});
  const Operand half{{n}, DType::bf16}, half_squares{{n}, DType::bf16, Contents::positive};
  const Operand with_step{{4}, DType::f64, Contents::given, 0, {1e-6, 0.1, 0.001, 1.0}};
  cases.push_back({.name = fmt::format("adamw_bf16/{}", n),
                   .operands = {half, half, half_squares, x, with_step, kFactor},
                   .prepare = op("adamw_bf16", {kDecay}),
                   .bytes = 16 * size});
}

void add_one_state(std::vector<Case>& cases, std::int64_t n) {
  const Operand x = f32({n});
  const auto size = static_cast<double>(n);
  cases.push_back({.name = fmt::format("lion/{}", n),
                   .operands = {x, x, x, kHyperparameters, kFactor},
                   .prepare = op("lion", {kDecay}),
                   .bytes = 20 * size});
  cases.push_back({.name = fmt::format("sgd_momentum/{}", n),
                   .operands = {x, x, x, kHyperparameters, kFactor},
                   .prepare = op("sgd_momentum"),
                   .bytes = 20 * size});
  cases.push_back({.name = fmt::format("segment_squares/{}", n),
                   .operands = {{{(n + 1023) / 1024}, DType::f64}, x},
                   .prepare = op("segment_squares"),
                   .bytes = 4 * size});
  cases.push_back({.name = fmt::format("sum_squares/{}", n),
                   .operands = {{{1}, DType::f64}, x},
                   .prepare = op("sum_squares"),
                   .bytes = 4 * size});
}

void add_coded(std::vector<Case>& cases, std::int64_t n) {
  const Operand x = f32({n}), codes{{n}, DType::u8, Contents::ids, 256},
                absmax = f32({(n + ops::kCodeBlock - 1) / ops::kCodeBlock}, Contents::positive);
  const auto size = static_cast<double>(n);
  cases.push_back({.name = fmt::format("adamw_8bit/{}", n),
                   .operands = {x, codes, absmax, codes, absmax, x, kHyperparameters, kFactor},
                   .prepare = op("adamw_8bit", {kDecay}),
                   .bytes = (12 + 2 * kCodedBytes) * size});
  cases.push_back({.name = fmt::format("lion_8bit/{}", n),
                   .operands = {x, codes, absmax, x, kHyperparameters, kFactor},
                   .prepare = op("lion_8bit", {kDecay}),
                   .bytes = (12 + kCodedBytes) * size});
}

// Optimizers of matrices. Adafactor needs sums over the gradient first, so it reads the gradient more than once.
void add_of_matrices(std::vector<Case>& cases, const Shape& matrix) {
  const Operand x = f32(matrix), row = f32({matrix[0]}, Contents::positive),
                column = f32({matrix[1]}, Contents::positive);
  const Operand half{matrix, DType::bf16};
  const std::string size = fmt::format("{}x{}", matrix[0], matrix[1]);
  const auto n = static_cast<double>(matrix.numel());
  cases.push_back({.name = "adafactor/" + size,
                   .operands = {x, row, column, x, kHyperparameters, kFactor},
                   .prepare = op("adafactor"),
                   .bytes = 12 * n});
  cases.push_back({.name = "muon_momentum/" + size,
                   .operands = {x, half, x, kFactor},
                   .prepare = op("muon_momentum"),
                   .bytes = 14 * n});
  cases.push_back({.name = "muon_apply/" + size,
                   .operands = {x, half, kHyperparameters, kFactor},
                   .prepare = op("muon_apply", {kDecay}),
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
