#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/fp8.h"
#include "kernels/gemm_key.h"

namespace qtrain::ops {
namespace {

void check_factors(const Factors& f, const Gemm& g) {
  check(f.a.shape.rank == 2 && f.b.shape.rank == 2, "gemm: operands are matrices");
  check(f.depth() == f.b.shape[f.transpose_b == Transpose::yes ? 1 : 0], "gemm: inner dimensions differ");
  check(f.rows() == g.c.t.shape[0] && f.columns() == g.c.t.shape[1], "gemm: result has another shape");
  check(f.a_stride == 0 || f.a_stride >= f.a.shape[1], "gemm: rows of A overlap");
  check(f.b_stride == 0 || f.b_stride >= f.b.shape[1], "gemm: rows of B overlap");
}

// The combinations that the library has.
void check_blocks(const Gemm::Fp8& f) {
  const bool whole = f.a_block == Fp8Block::matrix;
  check(whole == (f.b_block == Fp8Block::matrix), "gemm: only one operand has blocks");
  check(f.a_block != Fp8Block::square || f.b_block != Fp8Block::square, "gemm: both operands have square blocks");
}

// The order on a GPU. GEMMs in `added` have few terms and are limited by the traffic of C. If they come first, they do
// not read C; that the first GEMM reads it takes no time beside its multiplications.
std::vector<Gemm> added_first(const Gemm& g) {
  std::vector<Gemm> gemms = one_by_one(g);
  if (gemms.size() == 1 || g.adds()) return gemms;
  std::ranges::rotate(gemms, gemms.begin() + 1);
  gemms.front().c = g.c;
  gemms.back().c = accumulate(g.c.t);
  return gemms;
}

}  // namespace

Gemm added_to(Tensor c, const Factors& f, double alpha) {
  return {.c = accumulate(c),
          .a = f.a,
          .b = f.b,
          .transpose_a = f.transpose_a,
          .transpose_b = f.transpose_b,
          .alpha = alpha,
          .a_stride = f.a_stride,
          .b_stride = f.b_stride};
}

std::vector<Gemm> one_by_one(const Gemm& g) {
  std::vector<Gemm> gemms{g};
  gemms.front().added = {};
  for (const Factors& f : g.added)
    if (f.present()) {
      gemms.push_back(added_to(g.c.t, f, g.alpha));
      gemms.back().c_stride = g.c_stride;
    }
  return gemms;
}

Gemm added_to_residual(const Gemm& g) {
  Gemm sum = g;
  sum.residual = {};
  sum.c = accumulate(g.c.t);
  return sum;
}

bool multiplies_in_fp8(const Gemm& g) {
  const bool aligned = g.c.t.shape[1] % kFp8Row == 0 && g.c_stride % kFp8Row == 0 &&
                       reinterpret_cast<std::uintptr_t>(g.c.t.data) % kFp8Row == 0;
  // The library wants scales of vectors for a number of rows that is a multiple of 4. Rows that are tokens are divided
  // accordingly where the library is called.
  const bool in_blocks = g.fp8 && g.fp8->a_block != Fp8Block::matrix;
  const bool whole = !in_blocks || g.transpose_a == Transpose::no || g.first().rows() % kFp8Rows == 0;
  const bool stored_well =
      !is_fp8(g.b.dtype) || (g.fp8 && g.fp8->b_scale && g.fp8->b == g.b.dtype && g.transpose_b == Transpose::yes &&
                             g.b.shape[1] % kFp8Row == 0 && g.b_stride == 0);
  return g.fp8 && !g.bias && aligned && whole && stored_well && g.first().depth() > 0 && g.a.dtype != DType::f64;
}

Fp8Factors fp8_factors(const Gemm& g, std::byte* a, std::byte* b) {
  // The library reads both along the inner dimension.
  const std::int64_t row = fp8_row(g.first().depth());
  const bool stored = is_fp8(g.b.dtype);
  const Tensor a_codes{a, g.fp8->a, {g.first().rows(), row}, g.a.device};
  const Tensor b_codes{b, g.fp8->b, {g.first().columns(), row}, g.b.device};
  const auto scale_after = [](const Tensor& codes, Fp8Block block) {
    const Shape scales = fp8_scales(block, codes.shape[0], codes.shape[1]);
    return Tensor{codes.data + codes.bytes(), DType::f32, scales, codes.device};
  };
  const ToFp8 first{.codes = a_codes,
                    .scale = scale_after(a_codes, g.fp8->a_block),
                    .x = g.a,
                    .transpose = g.transpose_a,
                    .x_stride = g.a_stride,
                    .largest = g.fp8->a_largest,
                    .block = g.fp8->a_block};
  if (stored) return {.a = first, .b = {}, .b_codes = g.b, .b_scale = g.fp8->b_scale};
  const ToFp8 second{.codes = b_codes,
                     .scale = scale_after(b_codes, g.fp8->b_block),
                     .x = g.b,
                     .transpose = g.transpose_b == Transpose::yes ? Transpose::no : Transpose::yes,
                     .x_stride = g.b_stride,
                     .block = g.fp8->b_block};
  return {.a = first, .b = second, .b_codes = b_codes, .b_scale = second.scale};
}

void gemm(Ctx& ctx, const Gemm& g) {
  if (!g.c.wanted()) return;
  check(g.c.t.shape.rank == 2 && (g.c_stride == 0 || g.c_stride >= g.c.t.shape[1]), "gemm: the result is a matrix");
  check_factors(g.first(), g);
  for (const Factors& f : g.added)
    if (f.present()) check_factors(f, g);
  check(!g.bias || g.bias.numel() == g.c.t.shape[1], "gemm: bias has another length");
  if (g.residual)
    check(g.residual.shape == g.c.t.shape && g.residual.dtype == g.c.t.dtype && g.residual.data != g.c.t.data &&
              !g.c.adds() && g.c_stride == 0,
          "gemm: a residual has the shape and type of a result that is stored");
  check(!is_fp8(g.b.dtype) || multiplies_in_fp8(g), "gemm: a stored operand in FP8 that cannot be multiplied");
  if (g.fp8) check_blocks(*g.fp8);
  if (g.c.t.numel() == 0) return;
  if (ctx.device().kind == DeviceKind::cpu) {
    const Stream::Launch launch(ctx.stream(), "gemm", [&] { return sizes_of(key_of(g, ctx.matmul())); });
    return run_cpu(ctx, g);
  }
  for (const Gemm& gemm : added_first(g)) dispatch(ctx, gemm);
}

}  // namespace qtrain::ops
