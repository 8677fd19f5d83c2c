#pragma once
#include <string>
#include <vector>

#include "core/context.h"
#include "core/formats/safetensors.h"
#include "model/model_config.h"

namespace qtrain {

/// The type that matrices in FP8 are expanded to: that of config.json, as in transformers, or f32.
inline DType expanded_dtype(const ModelConfig& config) {
  return config.dtype == DType::f64 ? DType::f32 : config.dtype;
}

/// The values of a weight in a model's files: as they are stored or, for a matrix in FP8, its numbers times their
/// scales, rounded to expanded_dtype.
class DenseWeight {
 public:
  /// `name` is that in the file, and `config` that of the model, or null for files without FP8 such as adapters. The
  /// reader must outlive this object. Throws an input error that names file and tensor if the tensor is missing, or if
  /// it is in FP8 and its scales do not match or no config.json describes them.
  DenseWeight(Ctx& ctx, const SafetensorsReader& reader, const std::string& name, const ModelConfig* config);

  /// In host memory. The type may be an integer type, if it is in the file.
  ConstTensor values() const { return memory_.empty() ? file_ : expanded_; }
  /// Releases the mapped memory of the tensor in the file.
  void release() const { reader_.release(file_); }

 private:
  const SafetensorsReader& reader_;
  ConstTensor file_, expanded_;
  std::vector<std::byte> memory_;
};

}  // namespace qtrain
