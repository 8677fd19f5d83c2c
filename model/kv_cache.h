#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "model/transformer.h"

namespace qtrain {

/// Key/value cache of a batch of sequences: keys and values [rows, capacity, kv_heads, head_dim] per layer. In a paged
/// cache `rows` is the number of blocks of `capacity` tokens, and DecodeBatch::blocks maps sequences to blocks.
class KvCache {
 public:
  /// Uses the type of the model's activations, on its device.
  KvCache(const Transformer& model, std::int64_t rows, std::int64_t capacity);
  /// Bytes of device memory that a cache of this size takes.
  static std::size_t bytes(const Transformer& model, std::int64_t rows, std::int64_t capacity);
  Tensor keys(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].first; }
  Tensor values(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].second; }
  std::int64_t rows() const { return rows_; }
  std::int64_t capacity() const { return capacity_; }

 private:
  using Layers = std::vector<std::pair<Tensor, Tensor>>;
  static Layers lay_out(Arena& arena, const Transformer& model, std::int64_t rows, std::int64_t capacity);

  std::int64_t rows_, capacity_;
  Arena arena_;
  Layers layers_;
};

}  // namespace qtrain
