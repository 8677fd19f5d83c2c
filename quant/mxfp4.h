#pragma once
#include <cstdint>
#include <string>

#include "core/formats/json.h"
#include "core/formats/safetensors.h"

/// MXFP4, the format of the experts' matrices in gpt-oss checkpoints: 32 consecutive numbers share a scale, which is a
/// power of two, and have 4 bits each (sign, 2 of exponent, 1 of mantissa).
namespace qtrain {

/// The tensors X_blocks u8 [..., K/32, 16] and X_scales u8 [..., K/32] of a matrix X [..., K].
struct Mxfp4 {
  ConstTensor blocks, scales;

  /// Writes the matrix elements from `first` on to `to` as f32; `first` and the count are multiples of 32.
  void expand(std::int64_t first, Tensor to) const;
};
/// Throws an input error naming file and tensor if types or shapes do not fit a matrix of this shape.
Mxfp4 read_mxfp4(const SafetensorsReader& reader, const std::string& name, const Shape& shape);

/// Whether `quantization_config` of a config.json says MXFP4.
bool is_mxfp4_config(const Json& config);

}  // namespace qtrain
