#include "model/kv_cache.h"

namespace qtrain {

KvCache::KvCache(const Transformer& model, std::int64_t rows, std::int64_t capacity)
    : rows_(rows), capacity_(capacity), arena_("key/value cache", model.device()) {
  lay_out(arena_, model, rows, capacity);
  arena_.commit();
  layers_ = lay_out(arena_, model, rows, capacity);
}

std::size_t KvCache::bytes(const Transformer& model, std::int64_t rows, std::int64_t capacity) {
  Arena arena("key/value cache", model.device());
  lay_out(arena, model, rows, capacity);
  return arena.planned();
}

KvCache::Layers KvCache::lay_out(Arena& arena, const Transformer& model, std::int64_t rows, std::int64_t capacity) {
  Layers layers;
  for (const Layer& layer : model.layers()) {
    const Shape shape{rows, capacity, layer.key_value.heads, layer.key_value.head_dim};
    const Tensor keys = arena.take(model.options().activation_dtype, shape);
    layers.emplace_back(keys, arena.take(model.options().activation_dtype, shape));
  }
  return layers;
}

}  // namespace qtrain
