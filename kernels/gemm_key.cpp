#include "kernels/gemm_key.h"

#include <algorithm>
#include <bit>

namespace qtrain {
namespace {

std::uint32_t alignment_of(const void* p) {
  return std::uint32_t{1} << std::min(8, std::countr_zero(reinterpret_cast<std::uintptr_t>(p)));
}

// Rounds up to three significant bits: 1, 2, ... 8, 10, 12, 14, 16, 20, ...
std::int64_t class_of_rows(std::int64_t rows) {
  constexpr int kBits = 3;
  const auto n = static_cast<std::uint64_t>(rows);
  const int below = std::max(static_cast<int>(std::bit_width(n)) - kBits, 0);
  return static_cast<std::int64_t>(((n + (std::uint64_t{1} << below) - 1) >> below) << below);
}

const char* name_of(ops::Fp8Block block) {
  return block == ops::Fp8Block::square ? "128x128" : "128";
}

// "bfloat16", or "float8_e5m2*float8_e4m3fn".
std::string types_of(const GemmKey& key) {
  const std::string first(name_of(key.operands));
  return !is_fp8(key.operands) || key.second == key.operands ? first : first + "*" + std::string(name_of(key.second));
}

}  // namespace

GemmKey key_of(const ops::Gemm& g, MatmulPrecision matmul) {
  const bool codes = is_fp8(g.a.dtype) && g.fp8;
  return {.m = g.c.t.shape[0],
          .n = g.c.t.shape[1],
          .k = g.first().depth(),
          .stride_a = ops::row_step(g.a, g.a_stride),
          .stride_b = ops::row_step(g.b, g.b_stride),
          .stride_c = ops::row_step(g.c.t, g.c_stride),
          .operands = g.a.dtype,
          .second = g.b.dtype,
          .result = g.c.t.dtype,
          .block_a = codes ? g.fp8->a_block : ops::Fp8Block::matrix,
          .block_b = codes ? g.fp8->b_block : ops::Fp8Block::matrix,
          .transpose_a = g.transpose_a == ops::Transpose::yes,
          .transpose_b = g.transpose_b == ops::Transpose::yes,
          .bias = static_cast<bool>(g.bias),
          .adds = g.adds(),
          .tf32 = matmul == MatmulPrecision::tf32,
          .align_a = alignment_of(g.a.data),
          .align_b = alignment_of(g.b.data),
          .align_c = std::min(alignment_of(g.c.t.data), alignment_of(g.residual.data)),
          .align_bias = alignment_of(g.bias.data)};
}

GemmKey class_of(GemmKey key) {
  std::int64_t& rows = key.transpose_a ? key.k : key.m;
  rows = class_of_rows(rows);
  return key;
}

std::string to_string(const GemmKey& key) {
  std::string s = "m" + std::to_string(key.m) + " n" + std::to_string(key.n) + " k" + std::to_string(key.k) + " ";
  s += types_of(key) + (key.tf32 ? " tf32>" : ">") + std::string(name_of(key.result)) + " ";
  s += std::string(key.transpose_a ? "t" : "n") + (key.transpose_b ? "t" : "n");
  const std::int64_t dense_a = key.transpose_a ? key.m : key.k, dense_b = key.transpose_b ? key.k : key.n;
  if (key.stride_a != dense_a || key.stride_b != dense_b || key.stride_c != key.n)
    s += " rows " + std::to_string(key.stride_a) + "/" + std::to_string(key.stride_b) + "/" +
         std::to_string(key.stride_c);
  if (key.block_a != ops::Fp8Block::matrix)
    s += std::string(" blocks ") + name_of(key.block_a) + "*" + name_of(key.block_b);
  if (key.bias) s += " bias " + std::to_string(key.align_bias);
  s += key.adds ? " adds " : " stores ";
  return s + std::to_string(key.align_a) + "/" + std::to_string(key.align_b) + "/" + std::to_string(key.align_c);
}

std::string sizes_of(const GemmKey& key) {
  std::string s = std::to_string(key.m) + "x" + std::to_string(key.n) + "x" + std::to_string(key.k) + " ";
  s += types_of(key);
  if (key.result != key.operands) s += ">" + std::string(name_of(key.result));
  return s + (key.adds ? " adds" : "");
}

std::optional<ops::Gemm> repeatable(const ops::Gemm& g, Tensor memory) {
  constexpr std::int64_t kTile = 256;  // rows of the largest tiles on a GPU
  const std::int64_t step = ops::row_step(g.c.t, g.c_stride), room = memory.numel();
  ops::Gemm part = g;
  part.c.t.data = memory.data;
  if (ops::stretch(g.c.t, g.c_stride) <= room) return part;
  const std::int64_t fitting = room / step / kTile * kTile;
  if (fitting == 0) return {};
  part.a_stride = ops::row_step(g.a, g.a_stride);  // the stride of the full matrix
  part.a.shape.dims[g.transpose_a == ops::Transpose::yes ? 1 : 0] = fitting;
  part.c.t.shape.dims[0] = fitting;
  return part;
}

}  // namespace qtrain
