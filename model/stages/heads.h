#pragma once
#include "core/tensor.h"
#include "model/layer/layer.h"

namespace qtrain::stages {

/// Views [T, heads * head_dim] as [T, heads, head_dim].
inline Tensor as_heads(Tensor t, std::int64_t head_dim) {
  return t.reshaped({t.shape[0], t.shape[1] / head_dim, head_dim});
}

/// Keys and values of all ranks that share tokens, a few heads at a time: while one part is in use, the next is being
/// gathered.
class SharedHeads {
 public:
  /// k, v [T / ranks, H, D]: this rank's keys and values.
  SharedHeads(Ctx& ctx, const SharedKeys& shared, const Tensor& k, const Tensor& v);

  struct Part {
    std::int64_t first, count;  ///< key heads
    Tensor k, v;                ///< [T, count, D] for all ranks' tokens
  };
  std::int64_t parts() const { return (heads() + step_ - 1) / step_; }
  bool has_all_at_once() const { return step_ == heads(); }
  /// Returns part 0, then part 1 and so on; waits until it has arrived. Overwrites the previously
  /// returned part.
  Part take(std::int64_t number);

  /// Sums the gradient of all ranks' keys or values, in `memory`, over the ranks: this rank's rows for the part's heads
  /// go to `own` [T / ranks, H, D]. `spare`: the part's keys or values, which are overwritten.
  void reduce(const Part& part, const Tensor& memory, const Tensor& spare, const Sink& own);

 private:
  std::int64_t heads() const { return k_.shape[1]; }
  KeyBuffers::Heads& buffers(std::int64_t number) {
    return shared_.buffers.heads[static_cast<std::size_t>(number % 2)];
  }
  Part part(std::int64_t number);
  void begin(std::int64_t number);

  Ctx& ctx_;
  SharedKeys shared_;
  Tensor k_, v_;
  std::int64_t step_;
};

/// The first elements of a buffer, as a tensor of the given shape.
inline Tensor part_of(const Tensor& memory, const Shape& shape) {
  return memory.slice(0, shape.numel()).reshaped(shape);
}

}  // namespace qtrain::stages
