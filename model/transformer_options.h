#pragma once
#include <optional>

#include "core/param_store.h"
#include "model/context_share.h"
#include "model/lora.h"
#include "model/model_config.h"
#include "model/quantized_linear.h"

namespace qtrain {

/// What a model is and what of it trains.
struct TransformerOptions {
  ModelConfig config;
  DType weight_dtype = DType::f32;   ///< of frozen weights
  DType trained_dtype = DType::f32;  ///< of trained ones (f64 with f64); norms and biases are f32, and so are gradients
  DType activation_dtype = DType::f32;
  Update base = Update::trained;  ///< frozen for adapter training and inference
  std::optional<LoraConfig> lora = {};
  Update adapter = Update::trained;
  std::optional<Quantization> quantization = {};  ///< of frozen linear layers in the blocks
  DType dense_dtype = DType::f32;                 ///< of quantized weights while they are multiplied
  Sharding sharding = {};                         ///< among the ranks of a run
  ContextShare context = {};                      ///< of the tokens of each micro-batch

  /// The type of sums: norms, biases, adapters, statistics.
  DType full_dtype() const { return activation_dtype == DType::f64 ? DType::f64 : DType::f32; }
};

}  // namespace qtrain
