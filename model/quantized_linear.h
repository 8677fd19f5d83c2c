#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "core/param_store.h"
#include "kernels/fp8.h"
#include "model/projection.h"
#include "quant/bnb.h"

namespace qtrain {

/// FP8 weights in memory.
struct Fp8Storage {
  Shape block = {0, 0};  ///< rows and columns that share a scale; 0: all of the matrix
  /// The scales are those of the files; otherwise, layers with the same input share one scale, as if they were one.
  bool of_files = false;

  bool has_one_scale() const { return block == Shape{0, 0}; }
  /// Whether GEMMs in FP8 with scales for blocks read the numbers as they are.
  bool has_squares() const { return block == Shape{ops::kFp8Block, ops::kFp8Block}; }
  Shape block_of(const Shape& matrix) const {
    return {block[0] == 0 ? matrix[0] : block[0], block[1] == 0 ? matrix[1] : block[1]};
  }
};

/// How frozen linear layers of decoder blocks are quantized.
struct Quantization {
  BnbConfig bnb = {};                                   ///< which layers, and the code
  std::optional<Fp8Storage> fp8 = {};                   ///< instead of a code of bitsandbytes
  std::int64_t blocksize = 64, nested_blocksize = 256;  ///< of 4-bit matrices
  DType source = DType::f32;                            ///< values are rounded to this type before they are quantized

  /// "nf4, blocks of 64, nested scales", "int8" or "fp8".
  std::string describe() const;
};

/// A CPU context for quantization on behalf of another context: that context itself if it is on the CPU.
class HostContext {
 public:
  explicit HostContext(Ctx& ctx) : ctx_(&ctx) {
    if (ctx.device().kind != DeviceKind::cpu)
      ctx_ = &own_.emplace(Device{}, MatmulPrecision::storage, ctx.pool().size());
  }
  Ctx& get() { return *ctx_; }

 private:
  std::optional<Ctx> own_;
  Ctx* ctx_;
};

/// The quantized matrix of a linear layer in a store: the tensors that bitsandbytes serializes, under their names, plus
/// the offset of nested scales, which files keep in quant_state.
class QuantizedLinear {
 public:
  /// Declares the parts of matrix `name` [out, in] in `store`, for FP8 only the codes: those of layers with joined
  /// results are contiguous, each following that of `before`, and the scales follow the last.
  QuantizedLinear(ParamStore& store, std::string name, Shape shape, const Quantization& how,
                  const QuantizedLinear* before = nullptr);
  /// Declares the FP8 scales, or shares those of `first`, the first of the layers with the same input, unless it is
  /// null.
  void declare_scales(ParamStore& store, const QuantizedLinear* first);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  /// Whether its dense copy, if there is one, directly follows that of the previous matrix in memory.
  bool continues() const { return continues_; }
  /// Whether it has the scales of a folder in FP8.
  bool has_scales_of_files() const { return how_.fp8 && how_.fp8->of_files; }
  /// Whether it has the scale of the previous matrix.
  bool shares_scale() const { return shares_scale_; }
  void set_continues(bool continues) { continues_ = continues; }
  /// Whether the parameter is one of the matrix's parts.
  bool owns(const Param& p) const;
  /// Bytes of all parts on this rank except the codes, and the number of elements of all parts.
  std::size_t state_bytes() const;
  std::int64_t part_elements() const;
  QuantizedWeight weight() const;

  /// Fills the parts from the quantized matrix `name` of a file. Throws an input error if it is quantized differently
  /// from the declaration.
  void load(Ctx& ctx, const SafetensorsReader& reader, const std::string& name) const;
  /// Quantizes a matrix [out, in] in host memory. `host`: a CPU context; `largest`: see quantize_fp8. Throws input
  /// errors that name `place`.
  struct Source {
    ConstTensor dense;
    const std::string& place;
    std::optional<float> largest = {};
  };
  void quantize(Ctx& ctx, Ctx& host, const Source& source) const;
  /// The largest magnitude of the values that `quantize` encodes.
  float largest_of(Ctx& host, const Source& source) const;
  /// Writes the dense matrix to `dense`: f32, bf16 or f16 on the device of `ctx`.
  void expand(Ctx& ctx, Tensor dense) const;

 private:
  void load4(Ctx& ctx, const Matrix4& m, const std::string& place) const;
  void load8(Ctx& ctx, const Matrix8& m, const std::string& place) const;
  void load_fp8(Ctx& ctx, const SafetensorsReader& reader, const std::string& name) const;

  std::string name_;
  Shape shape_;
  Quantization how_;
  bool continues_ = false, shares_scale_ = false;
  Param *codes_ = nullptr, *scales_ = nullptr, *map_ = nullptr;
  Param *nested_absmax_ = nullptr, *nested_map_ = nullptr, *offset_ = nullptr;
};

/// Passes on the values of a matrix, with their place for messages.
using GiveDense = std::function<void(ConstTensor dense, const std::string& place)>;
/// Quantizes matrices whose values `read` gets from somewhere; those that share a scale are read twice.
void quantize_all(Ctx& ctx, const std::deque<QuantizedLinear>& matrices,
                  const std::function<void(const QuantizedLinear&, const GiveDense&)>& read);

}  // namespace qtrain
