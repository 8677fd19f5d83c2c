#include "emulator/blaslt/multiply.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "core/fp8.h"
#include "core/half.h"

namespace qtrain::stand_in {
namespace {

template <class T>
void convert(const void* from, std::span<double> to) {
  const auto* values = static_cast<const T*>(from);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(values[i]);
}

template <class F>
void decode(const void* from, std::span<double> to) {
  static const auto values = [] {
    std::array<double, 256> of_codes{};
    for (std::size_t code = 0; code < of_codes.size(); ++code)
      of_codes[code] = decode_fp8<F>(static_cast<std::uint8_t>(code));
    return of_codes;
  }();
  const auto* codes = static_cast<const std::uint8_t*>(from);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values[codes[i]];
}

/// Elements that are neighbors in memory.
void load(const void* from, cudaDataType_t type, std::span<double> to) {
  switch (type) {
    case CUDA_R_16BF: return convert<Bf16>(from, to);
    case CUDA_R_16F: return convert<F16>(from, to);
    case CUDA_R_8F_E4M3: return decode<E4m3>(from, to);
    case CUDA_R_8F_E5M2: return decode<E5m2>(from, to);
    default: return convert<float>(from, to);
  }
}

double load(const void* data, cudaDataType_t type, std::uint64_t i) {
  double value = 0;
  load(static_cast<const std::byte*>(data) + i * (type == CUDA_R_32F ? 4 : 2), type, std::span(&value, 1));
  return value;
}

void store(void* data, cudaDataType_t type, std::uint64_t i, double value) {
  const auto v = static_cast<float>(value);
  switch (type) {
    case CUDA_R_16BF: static_cast<Bf16*>(data)[i] = Bf16(v); break;
    case CUDA_R_16F: static_cast<F16*>(data)[i] = F16(v); break;
    default: static_cast<float*>(data)[i] = v;
  }
}

/// Results of neighboring rows and columns that are summed at the same time, each in its own order.
constexpr std::uint64_t kRows = 8, kColumns = 4;

/// Rows of op(A) or columns of op(B), each of `depth` elements: those of Width neighbors alternate. Zeros fill up the
/// last ones.
template <std::uint64_t Width>
class Panels {
 public:
  Panels(const void* data, const Layout& l, bool columns_are_rows) : depth_(columns_are_rows ? l.columns : l.rows) {
    const std::uint64_t outer = columns_are_rows ? l.rows : l.columns;
    values_.resize((outer + Width - 1) / Width * Width * depth_);
    std::vector<double> column(l.rows);
    const auto* from = static_cast<const std::byte*>(data);
    for (std::uint64_t j = 0; j < l.columns; ++j, from += static_cast<std::size_t>(l.leading) * l.element()) {
      load(from, l.type, column);
      for (std::uint64_t i = 0; i < l.rows; ++i) (columns_are_rows ? at(i, j) : at(j, i)) = column[i];
    }
  }
  double& at(std::uint64_t outer, std::uint64_t inner) {
    return values_[(outer / Width * depth_ + inner) * Width + outer % Width];
  }
  /// Elements of the panel that begins with this row or column.
  const double* from(std::uint64_t outer, std::uint64_t inner) const {
    return values_.data() + (outer * depth_ + inner * Width);
  }

 private:
  std::uint64_t depth_;
  std::vector<double> values_;
};

using Sums = std::array<std::array<double, kRows>, kColumns>;

Sums sums_of(const double* a, const double* b, std::uint64_t depth) {
  Sums sums{};
  for (std::uint64_t l = 0; l < depth; ++l, a += kRows, b += kColumns)
    for (std::uint64_t j = 0; j < kColumns; ++j)
      for (std::uint64_t i = 0; i < kRows; ++i) sums[j][i] += a[i] * b[j];
  return sums;
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
  const Panels<kRows> a(x.a, p.a, !p.transposes_a());
  const Panels<kColumns> b(x.b, p.b, p.transposes_b());
  std::vector<Sums> blocks((k + Scales::kBlock - 1) / Scales::kBlock);
  for (std::uint64_t row = 0; row < p.d.rows; row += kRows)
    for (std::uint64_t column = 0; column < p.d.columns; column += kColumns) {
      for (std::uint64_t first = 0; first < k; first += Scales::kBlock)
        blocks[first / Scales::kBlock] =
            sums_of(a.from(row, first), b.from(column, first), std::min(k - first, Scales::kBlock));
      for (std::uint64_t j = column; j < std::min(p.d.columns, column + kColumns); ++j)
        for (std::uint64_t i = row; i < std::min(p.d.rows, row + kRows); ++i) {
          double sum = 0;
          for (std::uint64_t first = 0; first < k; first += Scales::kBlock)
            sum += scale(p.operation.a_scale, of_a.at(i, first)) * scale(p.operation.b_scale, of_b.at(j, first)) *
                   blocks[first / Scales::kBlock][j - column][i - row];
          sum *= x.alpha;
          if (x.beta != 0) sum += x.beta * load(x.c, p.c.type, j * leading_c + i);
          if (p.operation.adds_bias()) sum += load(p.operation.bias, p.d.type, i);
          store(x.d, p.d.type, j * leading_d + i, sum);
        }
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
