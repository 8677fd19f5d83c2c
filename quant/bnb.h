#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"
#include "core/formats/safetensors.h"
#include "kernels/quantize.h"

/// Tensors of 4-bit and 8-bit matrices in model folders that bitsandbytes quantized, and `quantization_config`.
namespace qtrain {

/// Metadata of a 4-bit matrix (the JSON in X.weight.quant_state.bitsandbytes__nf4).
struct QuantState {
  FourBit type = FourBit::nf4;
  int blocksize = 64;
  DType dtype = DType::f32;  ///< dtype before quantization: f32, f16 or bf16
  Shape shape;               ///< [N, K]
  struct Nested {
    int blocksize = 256;
    float offset = 0;
  };
  std::optional<Nested> nested = {};
};

/// Formats and parses the JSON of bitsandbytes. `place` names file and tensor in errors. Throws an input error for
/// anything unusable (block sizes, types, shapes, keys).
std::string quant_state_json(const QuantState& state);
QuantState parse_quant_state(std::string_view json, FourBit type, const std::string& place);

/// A view of a 4-bit matrix in host memory, owned by a mapped file or a Quantized4.
struct Matrix4 {
  QuantState state;
  ConstTensor codes, absmax, map;         ///< u8 [ceil(n/2)], f32 or u8 [blocks], f32 [16]
  ConstTensor nested_absmax, nested_map;  ///< f32 [ceil(blocks/256)], f32 [256]; null unless nested

  /// Operand for ops on the CPU; refers to this object.
  ops::Blocks4 blocks() const;
};

/// Number of elements in each part of a 4-bit matrix; 0 for missing parts. With nested scales `absmax` is u8, and there
/// are also nested_map [256] and offset [1].
struct Sizes4 {
  std::int64_t codes, absmax, nested_absmax;

  /// Total bytes of all parts, including the maps.
  std::size_t bytes() const;
};
Sizes4 sizes4(const QuantState& state);

struct Quantize4Options {
  FourBit type = FourBit::nf4;
  int blocksize = 64;
  bool nested = true;
};

/// A 4-bit matrix that owns its parts.
struct Quantized4 {
  QuantState state;
  std::vector<std::uint8_t> codes, absmax_codes;  ///< absmax_codes if nested
  std::vector<float> absmax;                      ///< unless nested
  std::vector<float> map, nested_absmax, nested_map;

  Matrix4 view() const;
};
/// Quantizes a host matrix (f32, bf16 or f16) with the threads of `ctx`, a CPU context. `name` is the tensor's name for
/// errors. Throws an input error for NaN, infinity and dtypes that cannot be quantized.
Quantized4 quantize_matrix(Ctx& ctx, ConstTensor x, const Quantize4Options& options, const std::string& name);

/// Whether the file has `weight` ("model.layers.0.mlp.up_proj.weight") as a 4-bit matrix.
bool has_matrix4(const SafetensorsReader& reader, const std::string& weight);
/// Reads its parts and checks them against each other; the result refers to the reader's files. Throws input errors
/// that name file and tensor.
Matrix4 read_matrix4(const SafetensorsReader& reader, const std::string& weight);

/// An LLM.int8 matrix: weight i8 [N, K], scale (SCB) f32 [N]. GPU-specific layouts (weight_format other than row) are
/// refused.
struct Matrix8 {
  ConstTensor codes, scale;
};
bool has_matrix8(const SafetensorsReader& reader, const std::string& weight);
Matrix8 read_matrix8(const SafetensorsReader& reader, const std::string& weight);

/// Whether `name` is part of a quantized matrix other than its codes ("X.weight.absmax"), and so not an unknown tensor.
bool is_quant_part(const std::string& name);

/// Whether an entry of llm_int8_skip_modules is a name: not empty and not a regular expression, which transformers
/// would also accept.
bool is_module_name(std::string_view entry);

/// `quantization_config` of a config.json, as in transformers' BitsAndBytesConfig.
struct BnbConfig {
  enum class Bits : std::uint8_t { four, eight };
  Bits bits = Bits::four;
  FourBit quant_type = FourBit::fp4;
  bool double_quant = false;
  DType compute_dtype = DType::f32;
  std::vector<std::string> skip_modules = {};  ///< llm_int8_skip_modules; empty means null

  /// Whether a linear layer ("model.layers.0.mlp.up_proj") is not quantized: the head, and layers that skip_modules
  /// matches as in transformers (by a whole-module prefix, or a suffix).
  bool skips(const std::string& module) const;
};
/// Returns nothing if the config.json at `file` has no `quantization_config`. Throws an input error with file and key
/// for other methods (gptq, awq, ...) and unusable values.
std::optional<BnbConfig> bnb_config(const Json& config, const std::string& file);
/// The JSON with all keys, in transformers' order.
Json bnb_config_json(const BnbConfig& config);

}  // namespace qtrain
