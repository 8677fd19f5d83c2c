#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/context.h"
#include "model/adapter_init/factors.h"
#include "model/transformer.h"

namespace qtrain {

/// Starts a new adapter from the base weights while these are loaded, and changes them accordingly; see LoraInit. For
/// other initializations it does nothing.
class BaseChange {
 public:
  /// Where the initial factors come from: the weights, or AdapterParams::initial, which a checkpoint has filled.
  enum class From : std::uint8_t { weights, known };
  struct Options {
    From from = From::weights;
    std::uint64_t seed = 0;  ///< of randomized decompositions
  };
  BaseChange(Ctx& ctx, Transformer& model, const Options& options);

  /// The values that a weight of the base model gets ("model.layers.0.mlp.up_proj.weight"), in host memory and valid
  /// until the next call: `dense` itself, or W - scale * B A in f32. The first call for a weight computes its factors.
  ConstTensor values(const std::string& weight, ConstTensor dense);
  /// The number of layers whose factors were computed.
  std::int64_t computed() const { return computed_; }

 private:
  struct Layer {
    const LinearParams* params = nullptr;
    bool is_known = false;
  };

  void read(ConstTensor dense);
  void compute(Layer& layer, const Shape& shape);
  LowRank factors_of(const LinearParams& layer, Tensor w);
  Tensor lost_to_codes(const LinearParams& layer, Tensor w);
  LowRank known(const LinearParams& layer) const;

  Ctx& ctx_;
  Transformer& model_;
  LoraInit init_;
  Options options_;
  std::map<std::string, Layer> layers_;
  std::vector<float> memory_;  ///< the current weight
  std::int64_t computed_ = 0;
};

}  // namespace qtrain
