#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/safetensors.h"
#include "kernels/quantize.h"

/// Model folders that bitsandbytes quantized: the tensors of a 4-bit or 8-bit matrix, and `quantization_config`.
namespace qtrain {

/// What lies beside the codes of a 4-bit matrix (the JSON in X.weight.quant_state.bitsandbytes__nf4).
struct QuantState {
  FourBit type = FourBit::nf4;
  int blocksize = 64;
  DType dtype = DType::f32;  ///< of the matrix before: f32, f16 or bf16
  Shape shape;               ///< [N, K]
  struct Nested {
    int blocksize = 256;
    float offset = 0;
  };
  std::optional<Nested> nested = {};
};

/// The JSON as bitsandbytes writes it, and back. `place` names file and tensor in errors: anything that the file could
/// not be used with (block sizes, types, shapes, keys) is an input error.
std::string quant_state_json(const QuantState& state);
QuantState parse_quant_state(std::string_view json, FourBit type, const std::string& place);

/// A 4-bit matrix in host memory that something else owns: a mapped file or a Quantized4.
struct Matrix4 {
  QuantState state;
  ConstTensor codes, absmax, map;         ///< u8 [ceil(n/2)], f32 or u8 [blocks], f32 [16]
  ConstTensor nested_absmax, nested_map;  ///< f32 [ceil(blocks/256)], f32 [256]; null unless nested

  /// For ops on the CPU; refers to this object.
  ops::Blocks4 blocks() const;
};

/// Elements of each part of a 4-bit matrix of n elements; 0 for those that it does not have. With nested scales
/// `absmax` is u8 and there are nested_map [256] and offset [1].
struct Sizes4 {
  std::int64_t codes, absmax, nested_absmax;

  /// Of all parts with the maps.
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
  std::vector<float> absmax;                      ///< if not
  std::vector<float> map, nested_absmax, nested_map;

  Matrix4 view() const;
};
/// Quantizes a host matrix (f32, bf16 or f16) with the threads of `ctx`, a context of the CPU. `name` is the tensor's
/// in errors: NaN and infinity are an input error, and so is a dtype that cannot be quantized.
Quantized4 quantize_matrix(Ctx& ctx, ConstTensor x, const Quantize4Options& options, const std::string& name);

/// Whether the file has `weight` ("model.layers.0.mlp.up_proj.weight") as a 4-bit matrix.
bool has_matrix4(const SafetensorsReader& reader, const std::string& weight);
/// Its parts, checked against each other: views into the reader's files. Input errors name file and tensor.
Matrix4 read_matrix4(const SafetensorsReader& reader, const std::string& weight);

/// An LLM.int8 matrix: weight i8 [N, K], scale (SCB) f32 [N]. The layout of GPUs (weight_format other than row) is
/// refused.
struct Matrix8 {
  ConstTensor codes, scale;
};
bool has_matrix8(const SafetensorsReader& reader, const std::string& weight);
Matrix8 read_matrix8(const SafetensorsReader& reader, const std::string& weight);

/// Whether `name` belongs to a quantized matrix beside its codes ("X.weight.absmax"): not an unknown tensor.
bool is_quant_part(const std::string& name);

/// Whether an entry of llm_int8_skip_modules is a name: not empty, and no regular expression, as transformers takes
/// too.
bool is_module_name(std::string_view entry);

/// `quantization_config` of a config.json, as transformers' BitsAndBytesConfig.
struct BnbConfig {
  enum class Bits : std::uint8_t { four, eight };
  Bits bits = Bits::four;
  FourBit quant_type = FourBit::fp4;
  bool double_quant = false;
  DType compute_dtype = DType::f32;
  std::vector<std::string> skip_modules = {};  ///< llm_int8_skip_modules; empty: null

  /// Whether a linear layer ("model.layers.0.mlp.up_proj") stays as it is: it is the head, or named by
  /// skip_modules as in transformers (from the start up to the end of a module, or a suffix).
  bool skips(const std::string& module) const;
};
/// Null without `quantization_config` in the config.json at `file`; other methods (gptq, awq, ...) and values that
/// cannot be used are input errors with file and key.
std::optional<BnbConfig> bnb_config(const Json& config, const std::string& file);
/// With all keys, in transformers' order.
Json bnb_config_json(const BnbConfig& config);

}  // namespace qtrain
