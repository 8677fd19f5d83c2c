#include "model/transformer.h"

#include "model/families/family.h"

namespace qtrain {
namespace {

TransformerOptions for_device(TransformerOptions options, Device device) {
  options.config.joins_projections = options.joins_projections(device);
  options.config.finds_largest =
      options.fp8 == Fp8Recipe::tensorwise && options.finds_largest && options.config.joins_projections;
  options.config.finds_largest_x = options.config.finds_largest && options.fp8_forward;
  return options;
}

}  // namespace

Transformer::Transformer(Device device, TransformerOptions options)
    : options_(for_device(std::move(options), device)),
      device_(device),
      layers_(make_layers(options_.config)),
      params_(device, options_, layers_) {}

}  // namespace qtrain
