#include "kernels/gemm.h"

#include <algorithm>

#include "core/fp8.h"
#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_few_rows.h"
#include "kernels/cpu/gemm_reference.h"
#include "kernels/elementwise.h"
#include "kernels/fp8.h"

namespace qtrain::ops {

namespace {

void multiply_doubles(Ctx& ctx, const Gemm& g) {
  for (const Gemm& gemm : one_by_one(g))
    dispatch_float(g.c.t.dtype, [&]<class C>() { gemm_reference<double, double, C>(ctx, gemm); });
}

/// The GEMMs of a sum, or nothing if gemm_few_rows does not support them.
std::vector<FewRowsTerm> few_rows_terms(const Gemm& g) {
  std::vector<FewRowsTerm> terms{few_rows_term(g.first())};
  std::int64_t depth = g.first().depth();
  for (const Factors& f : g.added)
    if (f.present()) {
      terms.push_back(few_rows_term(f));
      depth += f.depth();
    }
  if (g.c.t.shape[0] > kFewRows || depth > kMaxFewRowsDepth) return {};
  return terms;
}

/// The values of codes in bfloat16, which represents them exactly.
std::vector<Bf16> fp8_values(ConstTensor codes) {
  std::vector<Bf16> values(static_cast<std::size_t>(codes.numel()));
  const auto* from = reinterpret_cast<const std::uint8_t*>(codes.data);
  const bool e4m3 = codes.dtype == DType::f8_e4m3;
  std::transform(from, from + values.size(), values.begin(),
                 [&](std::uint8_t code) { return Bf16(e4m3 ? decode_fp8<E4m3>(code) : decode_fp8<E5m2>(code)); });
  return values;
}

/// The scale of each row of codes in block `block` of its columns.
std::vector<float> scales_of_rows(Fp8Block kind, ConstTensor scales, std::int64_t rows, std::int64_t block) {
  const auto* values = scales.as<float>();
  const std::int64_t step = scales.shape[-1];
  std::vector<float> of_rows(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r)
    of_rows[static_cast<std::size_t>(r)] =
        kind == Fp8Block::vector ? values[block * step + r] : values[r / kFp8Block * step + block];
  return of_rows;
}

/// sum over blocks of K of scale_a scale_b (codes of A · codes of B), [M, N] in f32.
std::vector<float> sum_of_blocks(Ctx& ctx, const Gemm& g, const Fp8Factors& f) {
  const std::int64_t rows = g.first().rows(), columns = g.first().columns(), row = f.a.codes.shape[1];
  const std::vector<Bf16> a = fp8_values(f.a.codes), b = fp8_values(f.b_codes);
  std::vector<float> sums(static_cast<std::size_t>(rows * columns)), part(sums.size());
  for (std::int64_t first = 0; first < row; first += kFp8Block) {
    const std::int64_t depth = std::min(kFp8Block, row - first);
    const auto block_of = [&](const std::vector<Bf16>& values, std::int64_t height) {
      ConstTensor all = view_of(std::span(values), {height, row});
      all.data += static_cast<std::size_t>(first) * sizeof(Bf16);
      all.shape = {height, depth};
      return all;
    };
    run_cpu(ctx, Gemm{.c = store(view_of(std::span(part), {rows, columns})),
                      .a = block_of(a, rows),
                      .b = block_of(b, columns),
                      .transpose_b = Transpose::yes,
                      .a_stride = row,
                      .b_stride = row});
    const std::vector<float> of_a = scales_of_rows(g.fp8->a_block, f.a.scale, rows, first / kFp8Block),
                             of_b = scales_of_rows(g.fp8->b_block, f.b_scale, columns, first / kFp8Block);
    ctx.pool().run(rows, [&](std::int64_t i, int) {
      for (std::int64_t j = 0; j < columns; ++j)
        sums[static_cast<std::size_t>(i * columns + j)] += of_a[static_cast<std::size_t>(i)] *
                                                           of_b[static_cast<std::size_t>(j)] *
                                                           part[static_cast<std::size_t>(i * columns + j)];
    });
  }
  return sums;
}

/// C = or += alpha * sums, row by row.
void put(Ctx& ctx, const Gemm& g, std::span<const float> sums) {
  const std::int64_t columns = g.c.t.shape[1];
  const std::size_t step = static_cast<std::size_t>(row_step(g.c.t, g.c_stride)) * size_of(g.c.t.dtype);
  Tensor row = g.c.t;
  row.shape = {columns};
  for (std::int64_t i = 0; i < g.c.t.shape[0]; ++i, row.data += step)
    run_cpu(ctx,
            Copy{.y = {row, g.c.mode},
                 .x = view_of(sums.subspan(static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns)),
                              row.shape),
                 .scale = g.alpha});
}

/// Multiplies as a GPU does: sums products of codes, then multiplies by both scales. For tests, as CPUs lack FP8 GEMMs.
void multiply_in_fp8(Ctx& ctx, const Gemm& g) {
  const std::int64_t depth = g.first().depth();
  std::vector<std::byte> a(fp8_bytes(g.fp8->a_block, g.first().rows(), depth)),
      b(fp8_bytes(g.fp8->b_block, g.first().columns(), depth));
  const Fp8Factors f = fp8_factors(g, a.data(), b.data());
  run_cpu(ctx, f.a);
  if (f.b.x) run_cpu(ctx, f.b);
  std::vector<Gemm> gemms = one_by_one(g);
  if (g.fp8->a_block != Fp8Block::matrix) {
    put(ctx, g, sum_of_blocks(ctx, g, f));
    gemms.erase(gemms.begin());
    for (const Gemm& gemm : gemms) run_cpu(ctx, gemm);
    return;
  }
  const std::vector<Bf16> a_values = fp8_values(f.a.codes), b_values = fp8_values(f.b_codes);
  Gemm& first = gemms.front();
  first.fp8 = {};
  first.a = view_of(std::span(a_values), f.a.codes.shape);
  first.b = view_of(std::span(b_values), f.b_codes.shape);
  first.transpose_a = Transpose::no;
  first.transpose_b = Transpose::yes;
  first.a_stride = first.b_stride = 0;
  first.alpha = g.alpha * *f.a.scale.as<float>() * *f.b_scale.as<float>();
  for (const Gemm& gemm : gemms) run_cpu(ctx, gemm);
}

}  // namespace

void run_cpu(Ctx& ctx, const Gemm& g) {
  if (g.residual) {
    check(g.c.t.data != nullptr, "tensor has no storage");
    std::copy_n(g.residual.data, g.residual.bytes(), g.c.t.data);
    return run_cpu(ctx, added_to_residual(g));
  }
  if (g.a.dtype == DType::f64) return multiply_doubles(ctx, g);
  if (multiplies_in_fp8(g)) return multiply_in_fp8(ctx, g);
  for (const Gemm& gemm : one_by_one(g))
    for (const DType d : {gemm.a.dtype, gemm.b.dtype})
      check(d == DType::f32 || d == DType::bf16, "gemm: operands are f32 or bf16, or all f64");
  if (const auto few = few_rows_terms(g); !few.empty()) return gemm_few_rows(ctx, g, few);
  gemm_blocked(ctx, g);
}

}  // namespace qtrain::ops
