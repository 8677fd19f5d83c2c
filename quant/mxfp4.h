#pragma once
#include <cstdint>
#include <string>

#include "core/json.h"
#include "core/safetensors.h"

/// MXFP4 as checkpoints of gpt-oss hold the matrices of their experts: 32 numbers in a row share a scale, a power of
/// two, and have 4 bits each (sign, 2 of exponent, 1 of mantissa).
namespace qtrain {

/// The tensors X_blocks u8 [..., K/32, 16] and X_scales u8 [..., K/32] of a matrix X [..., K].
struct Mxfp4 {
  ConstTensor blocks, scales;

  /// Elements first, first + 1, ... of the matrix as f32 into `to`; `first` and the count are multiples of 32.
  void expand(std::int64_t first, Tensor to) const;
};
/// An input error naming file and tensor if types or shapes are not those of a matrix of this shape.
Mxfp4 read_mxfp4(const SafetensorsReader& reader, const std::string& name, const Shape& shape);

/// Whether `quantization_config` of a config.json says so.
bool is_mxfp4_config(const Json& config);

}  // namespace qtrain
