#pragma once
#include <optional>

#include "core/param_store.h"
#include "model/context_share.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "model/quantized_linear.h"

namespace qtrain {

/// Whether projections of one input (q, k, v; gate, up) write their results into one tensor, so that they are one GEMM
/// if their weights are contiguous. This changes the order of the sums in dx. Layers with magnitudes (DoRA) never do.
enum class JoinProjections : std::uint8_t { on_gpus, always, never };

/// The model, and which parts of it train.
struct TransformerOptions {
  ModelConfig config;
  DType weight_dtype = DType::f32;   ///< dtype of frozen weights
  DType trained_dtype = DType::f32;  ///< dtype of trained weights (f64 with f64); norms, biases and gradients are f32
  DType activation_dtype = DType::f32;
  /// Run the GEMMs of blocks' linear layers in FP8; needs a GPU and 16-bit activations.
  std::optional<Fp8Recipe> fp8 = {};
  bool fp8_forward = true;  ///< in the forward pass, too
  /// Whether the kernels that write operands of GEMMs in FP8 find the largest magnitudes. The results are the same.
  bool finds_largest = true;
  Update base = Update::trained;  ///< frozen for adapter training and inference
  std::optional<LoraConfig> lora = {};
  Update adapter = Update::trained;
  std::optional<Quantization> quantization = {};  ///< of frozen linear layers in the blocks
  DType dense_dtype = DType::f32;                 ///< dtype of quantized weights after expansion for a GEMM
  Sharding sharding = {};                         ///< how parameters are sharded among ranks
  ContextShare context = {};                      ///< how ranks share the tokens of each micro-batch
  JoinProjections join = JoinProjections::on_gpus;

  bool joins_projections(Device device) const {
    if (join == JoinProjections::never || (lora && lora->dora)) return false;
    return join == JoinProjections::always || device.kind == DeviceKind::cuda;
  }
  /// Whether GEMMs read weights that are stored in FP8.
  bool multiplies_stored_fp8() const { return fp8 && quantization && quantization->fp8; }
  /// Whether operands in FP8 have scales for blocks.
  bool has_fp8_blocks() const { return fp8 == Fp8Recipe::blockwise; }
  /// The dtype of norms, biases, adapters and statistics.
  DType full_dtype() const { return activation_dtype == DType::f64 ? DType::f64 : DType::f32; }
};

}  // namespace qtrain
