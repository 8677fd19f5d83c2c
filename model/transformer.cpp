#include "model/transformer.h"

#include "model/families/family.h"

namespace qtrain {

Transformer::Transformer(Device device, TransformerOptions options)
    : options_(std::move(options)),
      device_(device),
      layers_(make_layers(options_.config)),
      params_(device, options_, layers_) {}

}  // namespace qtrain
