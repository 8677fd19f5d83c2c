#pragma once
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/magnitude.h"
#include "model/projection.h"

/// Parts that forward and backward of projections share.
namespace qtrain {

/// Adapters whose A, and whose gradients of A, are contiguous: together [ranks, in].
struct Stack {
  ConstTensor a;
  Sink da;
  double scale;
  std::int64_t first;  // its first column in A x

  std::int64_t ranks() const { return a.shape[0]; }
  bool continues_with(const LoraWeights& lora) const {
    if (!are_contiguous(a, lora.a) || scale != lora.scale || da.mode != lora.da.mode) return false;
    return !da.wanted() || are_contiguous(da.t, lora.da.t);
  }
  void add(const LoraWeights& lora) {
    a.shape.dims[0] += lora.a.shape[0];
    if (da.wanted()) da.t.shape.dims[0] += lora.a.shape[0];
  }
};

/// The adapters of layers that read the same input.
class Adapters {
 public:
  template <class Layer>
  explicit Adapters(const std::vector<Layer>& layers) {
    for (const Layer& l : layers)
      if (l.layer.lora.present()) add(l.layer.lora);
  }
  bool empty() const { return stacks_.empty(); }
  const std::vector<Stack>& stacks() const { return stacks_; }
  std::int64_t ranks() const { return ranks_; }
  const LoraWeights& first() const { return *first_; }

 private:
  void add(const LoraWeights& lora) {
    if (empty()) first_ = &lora;
    if (!empty() && stacks_.back().continues_with(lora))
      stacks_.back().add(lora);
    else
      stacks_.push_back({lora.a, lora.da, lora.scale, ranks_});
    ranks_ += lora.a.shape[0];
  }

  std::vector<Stack> stacks_;
  std::int64_t ranks_ = 0;
  const LoraWeights* first_ = nullptr;
};

/// A matrix [T, R] at the start of memory that is sized for more ranks; each adapter has some of its columns.
template <class Memory>
class RankColumns {
 public:
  RankColumns(Memory memory, std::int64_t tokens, std::int64_t ranks)
      : all_(memory.reshaped({memory.numel()}).slice(0, tokens * ranks).reshaped({tokens, ranks})) {}
  Memory columns(std::int64_t first, std::int64_t count) const {
    Memory part = all_;
    if (part.data) part.data += static_cast<std::size_t>(first) * size_of(part.dtype);
    part.shape = {all_.shape[0], count};
    return part;
  }
  std::int64_t stride() const { return all_.shape[1]; }
  /// An adapter's columns times its B; nothing for a layer without an adapter.
  ops::Factors times_b(std::int64_t first, const LoraWeights& lora) const {
    if (!lora.present()) return {};
    return {.a = columns(first, lora.rank()), .b = lora.b, .transpose_b = ops::Transpose::yes, .a_stride = stride()};
  }

 private:
  Memory all_;
};

/// The input of the adapters: dropout(x) in training, else x. In scratch memory it follows the gradients [T, R], and is
/// followed by the results of a layer with a magnitude.
class AdapterInput {
 public:
  AdapterInput(const Adapters& adapters, ConstTensor seed, Tensor scratch)
      : lora_(adapters.first()), ranks_(adapters.ranks()), seed_(seed), scratch_(scratch) {}
  bool drops() const { return lora_.dropout > 0 && static_cast<bool>(seed_); }
  Tensor memory(const Shape& shape) const { return scratch_.slice(shape[0] * ranks_, shape.numel()).reshaped(shape); }
  Tensor results(const Shape& shape) const {
    const std::int64_t before = ranks_ + (drops() ? lora_.a.shape[1] : 0);
    return scratch_.slice(shape[0] * before, shape.numel()).reshaped(shape);
  }
  void drop(Ctx& ctx, Sink y, ConstTensor x) const {
    ops::dropout(ctx, {.y = y, .x = x, .seed = seed_, .stream = lora_.stream, .p = lora_.dropout});
  }
  ConstTensor of(Ctx& ctx, ConstTensor x) const {
    if (!drops()) return x;
    const Tensor dropped = memory(x.shape);
    drop(ctx, store(dropped), x);
    return dropped;
  }

 private:
  const LoraWeights& lora_;
  std::int64_t ranks_;
  ConstTensor seed_;
  Tensor scratch_;
};

/// The GEMM of an adapter, and its input.
struct DroppedAdapter {
  ops::Factors factors;
  const AdapterInput& input;
};

/// W as GEMMs read it; a quantized W is expanded to `memory`.
ConstTensor dense_weight(Ctx& ctx, const Projection& p, Tensor memory);

/// The types of FP8 operands: weights and activations have more digits, gradients more range.
inline std::optional<ops::Gemm::Fp8> forward_fp8(const Projection& p) {
  if (!p.fp8) return {};
  return ops::Gemm::Fp8{.a = DType::f8_e4m3, .b = DType::f8_e4m3};
}
inline std::optional<ops::Gemm::Fp8> backward_fp8(const Projection& p) {
  if (!p.fp8) return {};
  return ops::Gemm::Fp8{.a = DType::f8_e5m2, .b = DType::f8_e4m3};
}

/// y = or += m / norm * x.
inline ops::ScaleToMagnitude scaling(const LoraWeights& lora, Sink y, ConstTensor x) {
  return {.y = y, .x = x, .magnitude = lora.magnitude, .norm = lora.norm};
}

}  // namespace qtrain
