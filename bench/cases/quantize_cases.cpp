#include <fmt/format.h>

#include "bench/cases/cases.h"
#include "kernels/quantize.h"

namespace qtrain::bench {
namespace {

constexpr std::int64_t kBlock = 64, kNestedBlock = 256;

/// An op's arguments: `first`, followed by the parts of a 4-bit matrix with nested scales.
std::vector<Operand> before_matrix(std::vector<Operand> first, const Shape& shape) {
  const std::int64_t blocks = blocks_of(shape.numel(), kBlock);
  const Operand parts[] = {{{(shape.numel() + 1) / 2}, DType::u8, Contents::ids, 256},
                           {{blocks}, DType::u8, Contents::ids, 256},
                           f32({16}),
                           f32({blocks_of(blocks, kNestedBlock)}, Contents::positive),
                           f32({256}),
                           f32({1})};
  first.insert(first.end(), std::begin(parts), std::end(parts));
  return first;
}

}  // namespace

void add_quantized(std::vector<Case>& cases, const Sizes& s, const Shape& shape) {
  const std::string size = fmt::format("{}x{}", shape[0], shape[1]);
  const Operand dense{shape, s.dtype};
  const auto n = static_cast<double>(shape.numel());
  const double dense_bytes = n * static_cast<double>(size_of(s.dtype));
  // Half a byte per code, a byte per 64 of them, and the scales of those.
  const double coded_bytes = n * (0.5 + (1 + 4.0 / kNestedBlock) / kBlock);
  cases.push_back({.name = "dequantize4/" + size,
                   .operands = before_matrix({dense}, shape),
                   .prepare = op("dequantize4", {kBlock}),
                   .bytes = dense_bytes + coded_bytes});
  cases.push_back({.name = "quantize4/" + size,
                   .operands = {{{(shape.numel() + 1) / 2}, DType::u8, Contents::ids, 256},
                                f32({blocks_of(shape.numel(), kBlock)}),
                                dense},
                   .prepare = op("quantize4", {kBlock, 0}),
                   .bytes = dense_bytes + n * (0.5 + 4.0 / kBlock)});
  for (const std::int64_t rows : {1, 8}) {
    const Operand x{{rows, shape[1]}, s.dtype}, y{{rows, shape[0]}, s.dtype};
    cases.push_back({.name = fmt::format("gemm4/{}x{}", rows, size),
                     .operands = before_matrix({y, x}, shape),
                     .prepare = op("gemm4", {kBlock}),
                     .bytes = coded_bytes});
  }
  for (const std::int64_t rows : s.decoded) {
    const Operand x{{rows, shape[1]}, s.dtype}, y{{rows, shape[0]}, s.dtype};
    cases.push_back({.name = fmt::format("gemm_rows8/{}x{}", rows, size),
                     .operands = {y, x, {shape, DType::i8, Contents::ids, 128}, f32({shape[0]}, Contents::positive)},
                     .prepare = op("gemm_rows8"),
                     .bytes = n + static_cast<double>(shape[0]) * 4});
  }
}

}  // namespace qtrain::bench
