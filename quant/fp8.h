#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "core/formats/safetensors.h"

/// Linear layers in FP8, as published checkpoints store them: numbers of type E4M3 (core/fp8.h) and the scales that
/// these are multiplied by.
namespace qtrain {

/// `quantization_config` of such a checkpoint.
struct Fp8Config {
  Shape block = {};  ///< rows and columns that share a scale; rank 0: a scale per row or per matrix
};
/// Recognizes quant_method "fp8" (transformers' FineGrainedFP8Config: DeepSeek, Qwen3) and "compressed-tensors" with
/// the format float-quantized. Returns nothing for other methods. Throws an input error with file and key for unusable
/// values.
std::optional<Fp8Config> fp8_config(const Json& config, const std::string& file);

/// A view of a matrix [N, K] in a mapped file.
struct Fp8Matrix {
  ConstTensor codes;   ///< f8_e4m3 [N, K]
  ConstTensor scales;  ///< f32, bf16 or f16, or u8 (exponents with a bias of 127): one per block
  Shape block;         ///< rows and columns of a block; those at the end may be smaller

  /// Writes rows `first`, `first` + 1, ... to `to` [rows, K] in f32, bf16 or f16: the f32 products of numbers and
  /// scales, rounded once.
  void expand(std::int64_t first, Tensor to) const;
  /// All scales in f32.
  std::vector<float> scale_values() const;
};
/// FP8 codes of a dense matrix, and their scales, one for each block.
struct QuantizedFp8 {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};
/// The largest magnitude of a matrix in f32, bf16 or f16. Throws an input error that names `place` for values that are
/// not finite.
float largest_magnitude(ConstTensor dense, const std::string& place);
/// Encodes a matrix [N, K] in f32, bf16 or f16: the scale of a block is its largest magnitude divided by 448, as for
/// the operands of GEMMs (kernels/fp8.h). A given `largest` replaces those of all blocks. Throws as above.
QuantizedFp8 quantize_fp8(ConstTensor dense, const Shape& block, std::optional<float> largest,
                          const std::string& place);
/// Whether the file stores this weight in FP8.
bool is_fp8(const SafetensorsReader& reader, const std::string& weight);
/// Reads the matrix `weight` ("X.weight", or "X" for names without an ending), whose scales are X.weight_scale_inv or
/// X.weight_scale. Throws an input error that names file and tensor if there are none, or if their shape is not that of
/// the grid of blocks.
Fp8Matrix read_fp8(const SafetensorsReader& reader, const std::string& weight, const Fp8Config& config);

/// Whether `name` is that of another tensor of an FP8 matrix than its codes ("X.weight_scale_inv", "X.input_scale").
bool is_fp8_part(const std::string& name);

}  // namespace qtrain
