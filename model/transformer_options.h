#pragma once
#include <optional>

#include "core/param_store.h"
#include "model/context_share.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "model/quantized_linear.h"

namespace qtrain {

/// The model, and which parts of it train.
struct TransformerOptions {
  ModelConfig config;
  DType weight_dtype = DType::f32;   ///< dtype of frozen weights
  DType trained_dtype = DType::f32;  ///< dtype of trained weights (f64 with f64); norms, biases and gradients are f32
  DType activation_dtype = DType::f32;
  bool fp8 = false;               ///< multiply the linear layers of blocks in FP8; for GPUs, and 16-bit activations
  Update base = Update::trained;  ///< frozen for adapter training and inference
  std::optional<LoraConfig> lora = {};
  Update adapter = Update::trained;
  std::optional<Quantization> quantization = {};  ///< of frozen linear layers in the blocks
  DType dense_dtype = DType::f32;                 ///< dtype of quantized weights after expansion for a GEMM
  Sharding sharding = {};                         ///< how parameters are sharded among ranks
  ContextShare context = {};                      ///< how ranks share the tokens of each micro-batch

  /// The dtype of norms, biases, adapters and statistics.
  DType full_dtype() const { return activation_dtype == DType::f64 ? DType::f64 : DType::f32; }
};

}  // namespace qtrain
