#pragma once
#include <string>
#include <vector>

#include "core/context.h"
#include "core/formats/safetensors.h"
#include "model/model_config.h"

namespace qtrain {

/// The type that matrices in FP8 are expanded to: that of config.json, which transformers expands them to, or f32.
inline DType expanded_dtype(const ModelConfig& config) {
  return config.dtype == DType::f64 ? DType::f32 : config.dtype;
}

/// The values of a weight in a model's files: the file's own, or, for a matrix in FP8, its numbers times their scales,
/// rounded to expanded_dtype.
class DenseWeight {
 public:
  /// `name`: as in the file; the reader must outlive this. `config`: of the model, or null for files that hold no FP8,
  /// such as adapters. Throws an input error that names file and tensor if it is missing, or in FP8 without matching
  /// scales or a config.json that describes them.
  DenseWeight(Ctx& ctx, const SafetensorsReader& reader, const std::string& name, const ModelConfig* config);

  /// In host memory; of an integer type if the file's are.
  ConstTensor values() const { return memory_.empty() ? file_ : expanded_; }
  /// Releases the memory behind the file's part.
  void release() const { reader_.release(file_); }

 private:
  const SafetensorsReader& reader_;
  ConstTensor file_, expanded_;
  std::vector<std::byte> memory_;
};

}  // namespace qtrain
