#include "model/transformer.h"

namespace qtrain {

KvCache::KvCache(const Transformer& model, std::int64_t rows, std::int64_t capacity)
    : rows_(rows), capacity_(capacity), arena_("key/value cache", model.device()) {
  const ModelConfig& config = model.config();
  const DType dtype = model.options().activation_dtype;
  const Shape shape{rows, capacity, config.kv_heads, config.head_dim};
  for (int pass = 0; pass < 2; ++pass) {
    layers_.clear();
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const Tensor keys = arena_.take(dtype, shape), values = arena_.take(dtype, shape);
      layers_.emplace_back(keys, values);
    }
    if (pass == 0) arena_.commit();
  }
}

}  // namespace qtrain
