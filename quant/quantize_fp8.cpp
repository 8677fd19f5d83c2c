#include <algorithm>
#include <cmath>

#include "core/fp8.h"
#include "core/half.h"
#include "quant/fp8.h"

namespace qtrain {
namespace {

/// As in kernels/fp8.h: so that the scale is not 0.
constexpr float kLeastMagnitude = 1e-30F;

/// Rows and columns [begin, end) of a matrix.
struct PartOfMatrix {
  std::int64_t row, end_row, column, end_column;
};

template <class T>
float largest_of(ConstTensor dense, const PartOfMatrix& part, const std::string& place) {
  const T* x = dense.as<T>();
  float largest = 0;
  for (std::int64_t r = part.row; r < part.end_row; ++r)
    for (std::int64_t c = part.column; c < part.end_column; ++c) {
      const float size = std::abs(static_cast<float>(x[r * dense.shape[1] + c]));
      if (!std::isfinite(size))
        fail(ErrorKind::input, {.cause = "has a value that is not finite, which FP8 cannot scale",
                                .place = place,
                                .remedy = "use another model, or no quantization"});
      largest = std::max(largest, size);
    }
  return largest;
}

template <class T>
void encode_part(ConstTensor dense, const PartOfMatrix& part, float factor, QuantizedFp8& out) {
  const T* x = dense.as<T>();
  for (std::int64_t r = part.row; r < part.end_row; ++r)
    for (std::int64_t i = r * dense.shape[1] + part.column; i < r * dense.shape[1] + part.end_column; ++i)
      out.codes[static_cast<std::size_t>(i)] = encode_fp8<E4m3>(static_cast<float>(x[i]) * factor);
}

template <class F>
auto with_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::bf16: return f.template operator()<Bf16>();
    case DType::f16: return f.template operator()<F16>();
    default: return f.template operator()<float>();
  }
}

}  // namespace

float largest_magnitude(ConstTensor dense, const std::string& place) {
  return with_type(dense.dtype, [&]<class T>() {
    return largest_of<T>(dense, {0, dense.shape[0], 0, dense.shape[1]}, place);
  });
}

QuantizedFp8 quantize_fp8(ConstTensor dense, const Shape& block, std::optional<float> largest,
                          const std::string& place) {
  QuantizedFp8 out{.codes = std::vector<std::uint8_t>(static_cast<std::size_t>(dense.numel())), .scales = {}};
  const std::int64_t rows = dense.shape[0], columns = dense.shape[1];
  for (std::int64_t row = 0; row < rows; row += block[0])
    for (std::int64_t column = 0; column < columns; column += block[1]) {
      const PartOfMatrix part{row, std::min(row + block[0], rows), column, std::min(column + block[1], columns)};
      with_type(dense.dtype, [&]<class T>() {
        const float magnitude = largest ? *largest : largest_of<T>(dense, part, place);
        const float scale = std::max(magnitude, kLeastMagnitude) / E4m3::kMax;
        out.scales.push_back(scale);
        encode_part<T>(dense, part, 1 / scale, out);
      });
    }
  return out;
}

}  // namespace qtrain
