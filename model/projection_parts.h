#pragma once
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/fp8.h"
#include "kernels/gemm.h"
#include "kernels/magnitude.h"
#include "model/projection.h"

/// Parts that forward and backward of projections share.
namespace qtrain {

/// Columns [first, first + count) of a matrix; the distance between their rows is that of the matrix.
template <class Memory>
Memory columns_of(Memory matrix, std::int64_t first, std::int64_t count) {
  if (matrix.data) matrix.data += static_cast<std::size_t>(first) * size_of(matrix.dtype);
  matrix.shape = {matrix.shape[0], count};
  return matrix;
}

inline Tensor result_of(const ProjectionForward::Layer& l) {
  return l.y;
}
inline ConstTensor result_of(const ProjectionBackward::Layer& l) {
  return l.dy;
}

Shape shape_of(const Projection& p);
/// W as GEMMs read it; a quantized W is expanded to `memory`.
ConstTensor dense_weight(Ctx& ctx, const Projection& p, Tensor memory);

/// Whether GEMMs read the weights of a group where they are stored, or a copy with adapters.
enum class Weights : std::uint8_t { stored, copied };

/// Layers that are computed as one GEMM: their results (y or dy) are neighboring columns of one matrix, and their
/// weights, the gradients of these and, for y, their biases are contiguous. Quantized weights become contiguous by
/// being expanded.
template <class Layer>
class Joint {
 public:
  explicit Joint(const Layer& l)
      : result_(result_of(l)),
        first_(&l),
        weight_(l.layer.weight),
        bias_(kAddsBias ? l.layer.bias : ConstTensor{}),
        dweight_(l.layer.dweight),
        fp8_(fp8_with_one_scale(l.layer)),
        squares_(codes_of_squares(l.layer)) {}

  auto result() const { return result_; }
  ConstTensor bias() const { return bias_; }
  const Sink& dweight() const { return dweight_; }
  std::span<const Layer> layers() const { return {first_, count_}; }
  bool is_one() const { return count_ == 1; }
  const Projection& first() const { return first_->layer; }
  /// The joint weight if it is stored in FP8, contiguously and with one scale.
  const std::optional<Fp8Weight>& fp8() const { return fp8_; }
  /// The codes of the joint weight if it is stored in FP8, contiguously and with scales for squares, none of which
  /// belongs to two layers; otherwise empty.
  ConstTensor squares() const { return squares_; }

  ConstTensor weight(Ctx& ctx, Tensor memory) const {
    if (is_one()) return dense_weight(ctx, first_->layer, memory);
    if (!first_->layer.quantized) return weight_;
    const std::int64_t in = shape_of(first_->layer)[1];
    const Tensor all = memory.reshaped({memory.numel()}).slice(0, result_.shape[1] * in);
    std::int64_t begin = 0;
    for (const Layer& l : layers()) {
      const Shape shape = shape_of(l.layer);
      dense_weight(ctx, l.layer, all.slice(begin, shape.numel()));
      begin += shape.numel();
    }
    return all.reshaped({result_.shape[1], in});
  }
  /// Adds the next layer if it can be part of the same GEMM, and returns whether it can. Weights that are copied become
  /// contiguous.
  bool add(const Layer& l, Weights weights) {
    const Projection& p = l.layer;
    const bool copied = weights == Weights::copied;
    const auto next = result_of(l);
    if (columns_of(result_, result_.shape[1], next.shape[1]).data != next.data || !next.data) return false;
    if (p.fp8 != first_->layer.fp8) return false;
    if (!copied && (p.quantized ? !first_->layer.quantized : !are_contiguous(weight_, p.weight))) return false;
    if (kAddsBias && (bias_ ? !are_contiguous(bias_, p.bias) : bool(p.bias))) return false;
    if (dweight_.mode != p.dweight.mode) return false;
    if (dweight_.wanted() && !are_contiguous(dweight_.t, p.dweight.t)) return false;
    ++count_;
    add_to_fp8(fp8_with_one_scale(p));
    add_to_squares(codes_of_squares(p));
    result_.shape.dims[1] += next.shape[1];
    if (!p.quantized) weight_.shape.dims[0] += p.weight.shape[0];
    if (bias_) bias_.shape.dims[0] += p.bias.shape[0];
    if (dweight_.wanted()) dweight_.t.shape.dims[0] += p.dweight.t.shape[0];
    return true;
  }

 private:
  static constexpr bool kAddsBias = std::is_same_v<Layer, ProjectionForward::Layer>;

  static std::optional<Fp8Weight> fp8_with_one_scale(const Projection& p) {
    const auto* stored = p.quantized ? std::get_if<Fp8Weight>(&*p.quantized) : nullptr;
    return stored && stored->scales.numel() == 1 ? std::optional(*stored) : std::nullopt;
  }
  static ConstTensor codes_of_squares(const Projection& p) {
    const auto* stored = p.quantized ? std::get_if<Fp8Weight>(&*p.quantized) : nullptr;
    return stored && stored->block == Shape{ops::kFp8Block, ops::kFp8Block} ? stored->codes : ConstTensor{};
  }
  void add_to_squares(ConstTensor next) {
    const bool continues =
        squares_ && next && squares_.shape[0] % ops::kFp8Block == 0 && are_contiguous(squares_, next);
    if (!continues) return void(squares_ = {});
    squares_.shape.dims[0] += next.shape[0];
  }
  void add_to_fp8(const std::optional<Fp8Weight>& next) {
    const bool continues =
        fp8_ && next && next->scales.data == fp8_->scales.data && are_contiguous(fp8_->codes, next->codes);
    if (!continues) return fp8_.reset();
    fp8_->codes.shape.dims[0] += next->codes.shape[0];
  }

  decltype(result_of(std::declval<const Layer&>())) result_;
  const Layer* first_;
  std::size_t count_ = 1;
  ConstTensor weight_, bias_;
  Sink dweight_;
  std::optional<Fp8Weight> fp8_;
  ConstTensor squares_;
};

/// The codes of a weight stored in FP8 as B of a GEMM that reads them as they are or transposed, in `memory`, which may
/// have more bytes after them.
class StoredFp8 {
 public:
  StoredFp8(const ops::Gemm& g, ConstTensor codes, Tensor memory)
      : codes_(codes), turns_(g.transpose_b == ops::Transpose::no ? ops::Transpose::yes : ops::Transpose::no) {
    turned_ = {memory.data, codes.dtype, {codes.shape[1], codes.shape[0]}, memory.device};
    room_ = memory.bytes();
  }
  ConstTensor b() const { return turns() ? ConstTensor(turned_) : codes_; }
  /// Memory after the codes for the scales of squares.
  Tensor scales() const {
    const Shape shape = ops::fp8_scales(ops::Fp8Block::square, b().shape[0], b().shape[1]);
    return {turned_.data + turned_.bytes(), DType::f32, shape, turned_.device};
  }
  void write(Ctx& ctx) const {
    check(!turns() || turned_.bytes() <= room_, "no memory for a transposed weight");
    if (turns()) ops::transpose_fp8(ctx, {.y = turned_, .x = codes_});
  }
  template <class Layers>
  void write_scales(Ctx& ctx, const Layers& layers) const {
    check(turned_.bytes() + scales().bytes() <= room_, "no memory for the scales of a weight");
    std::int64_t first = 0;
    for (const auto& l : layers) {
      const ConstTensor of_layer = std::get<Fp8Weight>(*l.layer.quantized).scales;
      ops::place_scales(ctx, {.y = scales(), .x = of_layer, .first = first, .transpose = turns_});
      first += of_layer.shape[0];
    }
  }

 private:
  bool turns() const { return turns_ == ops::Transpose::yes; }

  ConstTensor codes_;
  ops::Transpose turns_;
  Tensor turned_;
  std::size_t room_;
};

/// Sets B of a GEMM with the joint weight: W as it is stored if the GEMM is in FP8 and can read that (transposed codes,
/// and scales for squares, are written to `memory`), else dense.
template <class Layer>
void set_weight(Ctx& ctx, ops::Gemm& g, const Joint<Layer>& joint, Tensor memory) {
  const bool squares = g.fp8 && g.fp8->b_block == ops::Fp8Block::square;
  const ConstTensor codes = squares ? joint.squares() : g.fp8 && joint.fp8() ? joint.fp8()->codes : ConstTensor{};
  if (codes) {
    const StoredFp8 weight(g, codes, memory);
    ops::Gemm stored = g;
    stored.b = weight.b();
    stored.transpose_b = ops::Transpose::yes;
    stored.fp8->b_scale = squares ? ConstTensor(weight.scales()) : joint.fp8()->scales;
    if (ops::multiplies_in_fp8(stored)) {
      weight.write(ctx);
      if (squares) weight.write_scales(ctx, joint.layers());
      g = stored;
      return;
    }
  }
  g.b = joint.weight(ctx, memory);
}

/// Groups layers whose results have the given stride into GEMMs. Without a stride, each layer has its own.
template <class Layer>
std::vector<Joint<Layer>> joints_of(const std::vector<Layer>& layers, std::int64_t stride,
                                    Weights weights = Weights::stored) {
  std::vector<Joint<Layer>> joints;
  for (const Layer& l : layers)
    if (joints.empty() || stride == 0 || !joints.back().add(l, weights)) joints.emplace_back(l);
  return joints;
}

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

/// project and project_to_ranks with an x_stride.
void project_with_adapters(Ctx& ctx, const ProjectionForward& f, const Adapters& adapters);
void multiply_beside_x(Ctx& ctx, const ProjectionForward& f, const Adapters& adapters);

/// A matrix [T, R] at the start of memory that is sized for more ranks, or with rows that are `stride` elements apart;
/// each adapter has some of its columns.
template <class Memory>
class RankColumns {
 public:
  RankColumns(Memory columns, std::int64_t stride) : all_(columns), stride_(stride) {}
  RankColumns(Memory memory, std::int64_t tokens, std::int64_t ranks)
      : RankColumns(memory.reshaped({memory.numel()}).slice(0, tokens * ranks).reshaped({tokens, ranks}), ranks) {}
  Memory columns(std::int64_t first, std::int64_t count) const { return columns_of(all_, first, count); }
  std::int64_t stride() const { return stride_; }
  /// An adapter's columns times its B; nothing for a layer without an adapter.
  ops::Factors times_b(std::int64_t first, const LoraWeights& lora) const {
    if (!lora.present()) return {};
    return {.a = columns(first, lora.rank()), .b = lora.b, .transpose_b = ops::Transpose::yes, .a_stride = stride()};
  }

 private:
  Memory all_;
  std::int64_t stride_;
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

/// y = x W^T, dx = dy W, and dW = dy^T x.
enum class GemmOfLayer : std::uint8_t { forward, input_grad, weight_grad };

/// The types and blocks of FP8 operands: with one scale for all of a matrix, gradients need the range of E5M2.
/// `largest`: the largest magnitudes of A, if they are known.
inline std::optional<ops::Gemm::Fp8> fp8_of(const Projection& p, GemmOfLayer gemm, ConstTensor largest) {
  if (!p.fp8 || (gemm == GemmOfLayer::forward && !p.fp8_forward)) return {};
  if (*p.fp8 == Fp8Recipe::tensorwise) {
    const DType a = gemm == GemmOfLayer::forward ? DType::f8_e4m3 : DType::f8_e5m2;
    return ops::Gemm::Fp8{.a = a, .b = DType::f8_e4m3, .a_largest = largest};
  }
  const auto of_b = gemm == GemmOfLayer::weight_grad ? ops::Fp8Block::vector : ops::Fp8Block::square;
  return ops::Gemm::Fp8{.a = DType::f8_e4m3, .b = DType::f8_e4m3, .a_block = ops::Fp8Block::vector, .b_block = of_b};
}

/// y = or += m / norm * x.
inline ops::ScaleToMagnitude scaling(const LoraWeights& lora, Sink y, ConstTensor x) {
  return {.y = y, .x = x, .magnitude = lora.magnitude, .norm = lora.norm};
}

}  // namespace qtrain
