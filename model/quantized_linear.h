#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/param_store.h"
#include "model/projection.h"
#include "quant/bnb.h"

namespace qtrain {

/// How frozen linear layers of decoder blocks are quantized.
struct Quantization {
  BnbConfig bnb = {};                                   ///< which layers, and the code
  std::int64_t blocksize = 64, nested_blocksize = 256;  ///< of 4-bit matrices
  DType source = DType::f32;                            ///< values are rounded to this type before they are quantized

  /// "nf4, blocks of 64, nested scales" or "int8".
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
  /// Declares the parts of matrix `name` [out, in] in `store`.
  QuantizedLinear(ParamStore& store, std::string name, Shape shape, const Quantization& how);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  /// Whether its dense copy, if there is one, directly follows that of the previous matrix in memory.
  bool continues() const { return continues_; }
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
  /// Quantizes a matrix [out, in] in host memory. `host`: a CPU context. Throws input errors that name `place`.
  void quantize(Ctx& ctx, Ctx& host, ConstTensor dense, const std::string& place) const;
  /// Writes the dense matrix to `dense`: f32, bf16 or f16 on the device of `ctx`.
  void expand(Ctx& ctx, Tensor dense) const;

 private:
  void load4(Ctx& ctx, const Matrix4& m, const std::string& place) const;
  void load8(Ctx& ctx, const Matrix8& m, const std::string& place) const;

  std::string name_;
  Shape shape_;
  Quantization how_;
  bool continues_ = false;
  Param *codes_ = nullptr, *scales_ = nullptr, *map_ = nullptr;
  Param *nested_absmax_ = nullptr, *nested_map_ = nullptr, *offset_ = nullptr;
};

}  // namespace qtrain
