#include "emulator/blaslt/multiply.h"

#include <algorithm>
#include <utility>

#include "core/fp8.h"
#include "core/half.h"

namespace qtrain::stand_in {
namespace {

double load(const void* data, cudaDataType_t type, std::uint64_t i) {
  switch (type) {
    case CUDA_R_16BF: return static_cast<float>(static_cast<const Bf16*>(data)[i]);
    case CUDA_R_16F: return static_cast<float>(static_cast<const F16*>(data)[i]);
    case CUDA_R_8F_E4M3: return decode_fp8<E4m3>(static_cast<const std::uint8_t*>(data)[i]);
    case CUDA_R_8F_E5M2: return decode_fp8<E5m2>(static_cast<const std::uint8_t*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

void store(void* data, cudaDataType_t type, std::uint64_t i, double value) {
  const auto v = static_cast<float>(value);
  switch (type) {
    case CUDA_R_16BF: static_cast<Bf16*>(data)[i] = Bf16(v); break;
    case CUDA_R_16F: static_cast<F16*>(data)[i] = F16(v); break;
    default: static_cast<float*>(data)[i] = v;
  }
}

/// op(X) with its columns one after another, each of `depth` elements that are contiguous.
std::vector<double> columns_of(const void* data, const Layout& l, bool columns_are_rows) {
  const std::uint64_t columns = columns_are_rows ? l.rows : l.columns, depth = columns_are_rows ? l.columns : l.rows;
  const auto leading = static_cast<std::uint64_t>(l.leading);
  std::vector<double> values(columns * depth);
  for (std::uint64_t j = 0; j < columns; ++j)
    for (std::uint64_t i = 0; i < depth; ++i)
      values[j * depth + i] = load(data, l.type, columns_are_rows ? i * leading + j : j * leading + i);
  return values;
}

std::pair<Scales, Scales> scales_of(const Problem& p) {
  return {{p.operation.a_scale_mode, p.d.rows, p.k()}, {p.operation.b_scale_mode, p.d.columns, p.k()}};
}

double scale(const void* scales, std::uint64_t i) {
  return scales ? double{static_cast<const float*>(scales)[i]} : 1.0;
}

// Without the ones that only fill up a stride.
void add_scales(std::vector<emulation::Touch>& touches, const Scales& of, const void* scales) {
  const auto* values = static_cast<const float*>(scales);
  if (of.mode != CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    return touches.push_back(emulation::reads(values, of.count() * sizeof(float)));
  for (std::uint64_t i = 0; i < of.outer; i += Scales::kBlock)
    touches.push_back(emulation::reads(values + of.at(i, 0), of.across() * sizeof(float)));
}

void add_columns(std::vector<emulation::Touch>& touches, const Layout& l, const void* data, bool writes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  const std::size_t column = l.rows * l.element(), step = static_cast<std::size_t>(l.leading) * l.element();
  if (column == step) return touches.push_back({data, column * l.columns, writes});
  for (std::uint64_t j = 0; j < l.columns; ++j) touches.push_back({bytes + j * step, column, writes});
}

}  // namespace

void multiply(const Problem& p, const Operands& x) {
  const std::uint64_t k = p.k(), leading_c = static_cast<std::uint64_t>(p.c.leading),
                      leading_d = static_cast<std::uint64_t>(p.d.leading);
  const auto [of_a, of_b] = scales_of(p);
  // Rows of op(A) and columns of op(B) are contiguous in these.
  const std::vector<double> a = columns_of(x.a, p.a, !p.transposes_a()), b = columns_of(x.b, p.b, p.transposes_b());
  for (std::uint64_t j = 0; j < p.d.columns; ++j)
    for (std::uint64_t i = 0; i < p.d.rows; ++i) {
      double sum = 0;
      for (std::uint64_t first = 0; first < k; first += Scales::kBlock) {
        double block = 0;
        for (std::uint64_t l = first; l < std::min(k, first + Scales::kBlock); ++l)
          block += a[i * k + l] * b[j * k + l];
        sum += scale(p.operation.a_scale, of_a.at(i, first)) * scale(p.operation.b_scale, of_b.at(j, first)) * block;
      }
      sum *= x.alpha;
      if (x.beta != 0) sum += x.beta * load(x.c, p.c.type, j * leading_c + i);
      if (p.operation.adds_bias()) sum += load(p.operation.bias, p.d.type, i);
      store(x.d, p.d.type, j * leading_d + i, sum);
    }
}

std::vector<emulation::Touch> touches_of(const Problem& p, const Operands& x) {
  std::vector<emulation::Touch> touches;
  add_columns(touches, p.a, x.a, false);
  add_columns(touches, p.b, x.b, false);
  if (x.beta != 0) add_columns(touches, p.c, x.c, false);
  if (p.operation.adds_bias()) touches.push_back(emulation::reads(p.operation.bias, p.d.rows * p.d.element()));
  const auto [of_a, of_b] = scales_of(p);
  if (p.operation.a_scale) add_scales(touches, of_a, p.operation.a_scale);
  if (p.operation.b_scale) add_scales(touches, of_b, p.operation.b_scale);
  add_columns(touches, p.d, x.d, true);
  return touches;
}

}  // namespace qtrain::stand_in
