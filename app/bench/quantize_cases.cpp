#include <fmt/format.h>

#include "app/bench/cases.h"
#include "kernels/quantize.h"

namespace qtrain::bench {
namespace {

using Tensors = std::span<const Tensor>;

/// The parts of a 4-bit matrix with nested scales, as operands.
struct Matrix {
  Shape shape;

  std::vector<Operand> operands() const {
    const std::int64_t blocks = blocks_of(shape.numel(), 64);
    const Operand map{{16}, DType::f32}, nested_map{{256}, DType::f32}, one{{1}, DType::f32};
    return {{{(shape.numel() + 1) / 2}, DType::u8, Contents::ids, 256},
            {{blocks}, DType::u8, Contents::ids, 256},
            map,
            {{blocks_of(blocks, 256)}, DType::f32, Contents::positive},
            nested_map,
            one};
  }
  /// With the operands from number `at` on.
  ops::Blocks4 blocks(Tensors t, std::size_t at) const {
    return {.codes = t[at],
            .absmax = t[at + 1],
            .map = t[at + 2],
            .nested_absmax = t[at + 3],
            .nested_map = t[at + 4],
            .offset = t[at + 5],
            .shape = shape};
  }
  /// Half a byte a code, a byte for 64 of them, and their scales.
  double bytes() const { return static_cast<double>(shape.numel()) * (0.5 + (1 + 4.0 / 256) / 64); }
};

std::vector<Operand> after(std::vector<Operand> first, const std::vector<Operand>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

}  // namespace

void add_quantized(std::vector<Case>& cases, const Sizes& s, const Shape& shape) {
  const Matrix matrix{shape};
  const std::string size = fmt::format("{}x{}", shape[0], shape[1]);
  const Operand dense{shape, s.dtype};
  const auto n = static_cast<double>(shape.numel());
  const double dense_bytes = n * static_cast<double>(size_of(s.dtype));
  cases.push_back(
      {.name = "dequantize4/" + size,
       .operands = after({dense}, matrix.operands()),
       .run = [matrix](Ctx& ctx, Tensors t) { ops::dequantize4(ctx, {.y = t[0], .w = matrix.blocks(t, 1)}); },
       .bytes = dense_bytes + matrix.bytes()});
  cases.push_back({.name = "quantize4/" + size,
                   .operands = {dense,
                                {{(shape.numel() + 1) / 2}, DType::u8, Contents::ids, 256},
                                {{blocks_of(shape.numel(), 64)}, DType::f32}},
                   .run = [](Ctx& ctx, Tensors t) { ops::quantize4(ctx, {.codes = t[1], .absmax = t[2], .x = t[0]}); },
                   .bytes = dense_bytes + n * (0.5 + 4.0 / 64)});
  for (const std::int64_t rows : {1, 8}) {
    const Operand x{{rows, shape[1]}, s.dtype}, y{{rows, shape[0]}, s.dtype};
    cases.push_back(
        {.name = fmt::format("gemm4/{}x{}", rows, size),
         .operands = after({y, x}, matrix.operands()),
         .run = [matrix](Ctx& ctx,
                         Tensors t) { ops::gemm4(ctx, {.c = store(t[0]), .a = t[1], .w = matrix.blocks(t, 2)}); },
         .bytes = matrix.bytes()});
  }
}

}  // namespace qtrain::bench
