#pragma once
#include <deque>
#include <vector>

#include "core/context.h"
#include "model/parameters.h"

namespace qtrain {

/// A decoder-only language model as it is declared: the tables of its layers and their parameters. It has no memory
/// until a Runner is made for it.
class Transformer {
 public:
  Transformer(Device device, TransformerOptions options);
  Transformer(Ctx& ctx, TransformerOptions options) : Transformer(ctx.device(), std::move(options)) {}
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelConfig& config() const { return options_.config; }
  const TransformerOptions& options() const { return options_; }
  Device device() const { return device_; }
  /// The dropout of the adapter's inputs.
  double dropout() const { return options_.lora ? options_.lora->dropout : 0; }
  const std::vector<Layer>& layers() const { return layers_; }
  Parameters& params() { return params_; }
  const Parameters& params() const { return params_; }
  ParamStore& weights() { return params_.weights(); }
  ParamStore& adapter() { return params_.adapter().store(); }
  const std::deque<QuantizedLinear>& quantized() const { return params_.quantized(); }
  std::vector<Param*> trained() { return params_.trained(); }

 private:
  TransformerOptions options_;
  Device device_;
  std::vector<Layer> layers_;
  Parameters params_;
};

}  // namespace qtrain
