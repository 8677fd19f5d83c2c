#pragma once
#include <string>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "tests/kernels/support.h"

/// Runs of the ops on block-quantized tensors, on any device.
namespace qtrain::testing {

struct QuantizeCase {
  DType dtype;
  std::int64_t n;
  FourBit type = FourBit::nf4;
  int blocksize = 64;
};

inline std::string describe(const QuantizeCase& c) {
  return std::string(name_of(c.dtype)) + " " + std::to_string(c.n) + (c.type == FourBit::nf4 ? " nf4 " : " fp4 ") +
         std::to_string(c.blocksize);
}

/// All block sizes, and sizes that are multiples of nothing.
inline std::vector<QuantizeCase> quantize_cases() {
  return {{DType::f32, 64 * 5},
          {DType::bf16, 333, FourBit::fp4},
          {DType::f16, 1, FourBit::nf4, 32},
          {DType::bf16, 5001, FourBit::nf4, 128},
          {DType::f32, 2050, FourBit::fp4, 1024},
          {DType::bf16, 9000, FourBit::nf4, 4096},
          {DType::f16, 32 * 300, FourBit::nf4, 32}};
}

/// The bytes of each result, by name.
using ByteResults = std::vector<std::pair<std::string, std::vector<std::byte>>>;

inline Array floats(std::span<const float> values) {
  Array a(DType::f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), a.host<float>());
  return a;
}

/// Normal values with difficult cases: zeros, a subnormal block, large ones.
inline Array hard_values(const QuantizeCase& c) {
  Array x = random(c.dtype, {c.n}, 5);
  for (std::int64_t i = 0; i < c.n; ++i) {
    const std::int64_t block = i / c.blocksize;
    if (block == 1) x.set(i, 0);
    if (block == 2) x.set(i, x.get(i) * 1e-7);
    if (block == 3) x.set(i, x.get(i) * 90);
  }
  return x;
}

/// A 4-bit tensor of hard_values, quantized on the device of `ctx`.
struct QuantizedArrays {
  Array codes, absmax, map, absmax_codes, nested_absmax, nested_map, offset;

  QuantizedArrays(Ctx& ctx, const QuantizeCase& c)
      : codes(DType::u8, {(c.n + 1) / 2}),
        absmax(DType::f32, {blocks_of(c.n, c.blocksize)}),
        map(floats(map_of(c.type))),
        absmax_codes(DType::u8, absmax.shape()),
        nested_absmax(DType::f32, {blocks_of(absmax.size(), 256)}),
        nested_map(floats(kSignedDynamicMap)),
        offset(DType::f32, {1}) {
    Array x = hard_values(c);
    ops::quantize4(ctx, {.codes = codes, .absmax = absmax, .x = x, .type = c.type, .blocksize = c.blocksize});
    Array scales = absmax;
    ops::nest_absmax(
        ctx,
        {.codes = absmax_codes, .nested_absmax = nested_absmax, .offset = offset, .absmax = scales, .map = nested_map});
  }
  ops::Blocks4 plain(const QuantizeCase& c, Shape shape) {
    return {.codes = codes, .absmax = absmax, .map = map, .shape = shape, .blocksize = c.blocksize};
  }
  ops::Blocks4 nested(const QuantizeCase& c, Shape shape) {
    ops::Blocks4 w = plain(c, shape);
    w.absmax = absmax_codes;
    w.nested_absmax = nested_absmax;
    w.nested_map = nested_map;
    w.offset = offset;
    return w;
  }
};

inline ByteResults four_bit_results(Ctx& ctx, const QuantizeCase& c) {
  QuantizedArrays q(ctx, c);
  ByteResults out{{"codes", q.codes.bytes()},
                  {"absmax", q.absmax.bytes()},
                  {"nested codes", q.absmax_codes.bytes()},
                  {"nested absmax", q.nested_absmax.bytes()},
                  {"offset", q.offset.bytes()}};
  for (const DType d : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t shift : {0, 1}) {  // aligned and not
      Array y(d, {c.n + 1}), z(d, {c.n + 1});
      ops::fill(ctx, {.y = y, .value = 0});
      ops::fill(ctx, {.y = z, .value = 0});
      ops::dequantize4(ctx, {.y = y.tensor().slice(shift, c.n), .w = q.plain(c, {c.n})});
      ops::dequantize4(ctx, {.y = z.tensor().slice(shift, c.n), .w = q.nested(c, {c.n})});
      out.emplace_back("y " + std::string(name_of(d)), y.bytes());
      out.emplace_back("nested y " + std::string(name_of(d)), z.bytes());
    }
  return out;
}

inline ByteResults eight_bit_results(Ctx& ctx, std::int64_t n, int blocksize) {
  ByteResults out;
  for (const ops::CodeRule rule : {ops::CodeRule::nearest, ops::CodeRule::grid})
    for (const auto& values : {kSignedDynamicMap, kUnsignedDynamicMap}) {
      Array x = hard_values({DType::f32, n, FourBit::nf4, blocksize}), map = floats(values);
      Array codes(DType::u8, {n}), absmax(DType::f32, {blocks_of(n, blocksize)}), y(DType::f32, {n});
      ops::quantize8(ctx, {.codes = codes, .absmax = absmax, .x = x, .map = map, .blocksize = blocksize, .rule = rule});
      ops::dequantize8(ctx, {.y = y, .codes = codes, .absmax = absmax, .map = map, .blocksize = blocksize});
      out.emplace_back("codes", codes.bytes());
      out.emplace_back("absmax", absmax.bytes());
      out.emplace_back("y", y.bytes());
    }
  return out;
}

inline ByteResults row_results(Ctx& ctx, const Shape& shape) {
  Array codes(DType::i8, shape), scale = random(DType::f32, {shape[0]}, 3);
  for (std::int64_t i = 0; i < shape.numel(); ++i) codes.host<std::int8_t>()[i] = static_cast<std::int8_t>(i * 37 - 5);
  ByteResults out;
  for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
    Array y(d, shape);
    ops::dequantize_rows8(ctx, {.y = y, .codes = codes, .scale = scale});
    out.emplace_back(name_of(d), y.bytes());
  }
  return out;
}

struct Gemm4Case {
  std::int64_t M, N, K;
  DType dtype = DType::f32, result = DType::f32;
  int blocksize = 64;
  Sink::Mode mode = Sink::Mode::store;
};
inline std::vector<Gemm4Case> gemm4_cases() {
  return {{1, 40, 128},
          {8, 9, 192, DType::bf16, DType::bf16},
          {3, 17, 33, DType::bf16, DType::f32, 32},
          {5, 6, 300, DType::f32, DType::f32, 256, Sink::Mode::accumulate},
          {2, 33, 520, DType::bf16, DType::bf16, 4096, Sink::Mode::accumulate}};
}

/// The GEMM by ops::gemm4, and by its formula in f64.
inline std::pair<std::vector<double>, std::vector<double>> gemm4_results(Ctx& ctx, const Gemm4Case& g) {
  const QuantizeCase c{DType::f32, g.N * g.K, FourBit::nf4, g.blocksize};
  QuantizedArrays q(ctx, c);
  Array a = random(g.dtype, {g.M, g.K}, 8), y = random(g.result, {g.M, g.N}, 9), w(DType::f32, {g.N, g.K});
  Array bias = random(g.dtype, {g.N}, 10);
  std::vector<double> want = y.values();
  ops::dequantize4(ctx, {.y = w, .w = q.nested(c, {g.N, g.K})});
  for (std::int64_t m = 0; m < g.M; ++m)
    for (std::int64_t n = 0; n < g.N; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < g.K; ++k) sum += a.get(m * g.K + k) * w.get(n * g.K + k);
      double& out = want[static_cast<std::size_t>(m * g.N + n)];
      out = (g.mode == Sink::Mode::accumulate ? out : 0) + 0.5 * sum + bias.get(n);
    }
  ops::gemm4(ctx, {.c = {y, g.mode}, .a = a, .w = q.nested(c, {g.N, g.K}), .alpha = 0.5, .bias = bias});
  return {y.values(), want};
}

}  // namespace qtrain::testing
