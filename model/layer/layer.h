#pragma once
#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/param_store.h"
#include "model/context_share.h"
#include "model/projection.h"

namespace qtrain {

/// A tensor of a layer: its index in Layer::tensors.
enum class TensorId : std::int32_t {};
/// A parameter of a layer: its index in Layer::vectors, Layer::linears or Layer::experts.
enum class VectorId : std::int32_t { none = -1 };
enum class LinearId : std::int32_t {};
enum class ExpertsId : std::int32_t {};
using ParamId = std::variant<VectorId, LinearId, ExpertsId>;

/// A set of tensors of one layer.
class TensorSet {
 public:
  static constexpr std::size_t kCapacity = 128;

  TensorSet() = default;
  TensorSet(std::initializer_list<TensorId> tensors) : TensorSet(std::span(tensors)) {}
  explicit TensorSet(std::span<const TensorId> tensors) {
    for (const TensorId t : tensors) bits_.set(static_cast<std::size_t>(t));
  }
  bool has(TensorId t) const { return bits_.test(static_cast<std::size_t>(t)); }
  bool empty() const { return bits_.none(); }
  void add(TensorId t) { bits_.set(static_cast<std::size_t>(t)); }
  friend TensorSet operator|(TensorSet a, TensorSet b) { return TensorSet(a.bits_ | b.bits_); }
  friend TensorSet operator&(TensorSet a, TensorSet b) { return TensorSet(a.bits_ & b.bits_); }
  friend TensorSet operator-(TensorSet a, TensorSet b) { return TensorSet(a.bits_ & ~b.bits_); }
  friend bool operator==(const TensorSet&, const TensorSet&) = default;

 private:
  explicit TensorSet(std::bitset<kCapacity> bits) : bits_(bits) {}
  std::bitset<kCapacity> bits_;
};

/// The size of a dimension, as per_token * tokens + fixed.
struct Extent {
  std::int64_t per_token = 0, fixed = 0;

  std::int64_t of(std::int64_t tokens) const { return per_token * tokens + fixed; }
};
inline constexpr Extent kTokens{.per_token = 1};

/// The dtype of a tensor's elements.
enum class Precision : std::uint8_t {
  activation,  ///< the dtype of the model's activations
  full,        ///< f32, or f64 with f64 activations: statistics and mixing weights
  index,       ///< i32
};
/// Whether a tensor has a gradient.
enum class HasGradient : std::uint8_t { no, yes };
/// What the "selective" recompute policy does with a tensor.
enum class Selective : std::uint8_t { keep, recompute };

struct TensorSpec {
  std::string name;  ///< unique in its layer: the module that writes it, or its role in that module
  std::vector<Extent> shape;
  Precision precision = Precision::activation;
  HasGradient gradient = HasGradient::yes;
  Selective selective = Selective::keep;

  Shape shape_for(std::int64_t tokens) const;
};

/// A vector parameter, kept in full precision: weights of norms, sinks of attention.
struct VectorSpec {
  std::string name;  ///< without the prefix "model.layers.N.": "input_layernorm.weight"
  std::int64_t size = 0;
  Init init = {Init::Kind::ones, 0};
  std::string gguf = {};  ///< its name in GGUF files without the prefix "blk.N.": "attn_norm.weight"
  Decay decay = Decay::no;
};

enum class Bias : std::uint8_t { no, yes };
/// bitsandbytes and PEFT do not treat transformers' routers as linear layers: they are not quantized, and are only
/// adapted as parameters.
enum class LinearKind : std::uint8_t { plain, router };

/// A linear layer [out, in], which may be quantized and is a potential adapter target.
struct LinearSpec {
  std::string module;  ///< without the prefix "model.layers.N.": "self_attn.q_proj"
  std::int64_t out = 0, in = 0;
  Bias bias = Bias::no;
  std::string gguf = {};          ///< "attn_q"
  std::int64_t rotary_heads = 0;  ///< number of heads if its output is rotated, else 0
  LinearKind kind = LinearKind::plain;
  /// Its parameter in transformers, for adapters on parameters: "mlp.gate". Empty: `module`.
  std::string parameter = {};
  Init bias_init = {};
};

/// How files hold the matrices of all experts.
enum class ExpertFiles : std::uint8_t {
  apart,   ///< separately: mlp.experts.N.gate_proj.weight [out, in]
  joined,  ///< as one tensor mlp.experts.gate_up_proj [count, in, out], or its MXFP4 blocks, with separate biases
};

/// The matrices [out, in] of all experts, stored as one tensor [count, out, in].
struct ExpertsSpec {
  std::string module, part;  ///< "mlp.experts" and "gate_proj"
  std::int64_t count = 0, out = 0, in = 0;
  std::string gguf = {};  ///< "ffn_gate_exps"
  ExpertFiles files = ExpertFiles::apart;
  Bias bias = Bias::no;  ///< [count, out]

  /// The name of one expert's tensor in files, without the prefix "model.layers.N.".
  std::string tensor_of(std::int64_t expert) const;
};

/// A norm weight [C] in f32 and the destination of its gradient.
struct NormWeight {
  ConstTensor weight = {};
  Sink grad = discard();

  bool present() const { return weight.shape.rank > 0; }
};

/// The matrices of experts [E, out, in] and the destinations of their gradients. With an adapter they are W_e + scale *
/// B_e A_e: A [E, r, in], shared by matrices that read the same input, and B [E, out, r].
struct ExpertsWeight {
  ConstTensor weight = {}, bias = {}, a = {}, b = {};  ///< bias [E, out] in f32, or none
  Sink dweight = discard(), dbias = discard(), da = discard(), db = discard();
  double scale = 1;

  bool adapted() const { return a.shape.rank == 3; }
  bool trains() const { return dweight.wanted() || dbias.wanted() || da.wanted(); }
};

/// The acquired parameters of one layer, indexed by their ids.
struct LayerWeights {
  std::vector<NormWeight> vectors;
  std::vector<Projection> linears;
  std::vector<ExpertsWeight> experts;

  const NormWeight& operator[](VectorId id) const;
  const Projection& operator[](LinearId id) const { return linears[static_cast<std::size_t>(id)]; }
  const ExpertsWeight& operator[](ExpertsId id) const { return experts[static_cast<std::size_t>(id)]; }
};

/// The angles of a rotary embedding: cos and sin [positions, R/2], where R elements of a head are rotated.
struct RotaryTable {
  Tensor cos, sin;
};

/// Buffers for the load-balancing loss (see ops::RouterBalance): sums over the layers of a pass, f64 [E], and for the
/// gradient the factor of each expert [E]. Empty without that loss.
struct RouterBalanceRun {
  Sink counts = discard(), sums = discard();  ///< discard while a layer is recomputed
  ConstTensor factor = {}, tokens = {};       ///< tokens i32 [1]: number of non-padding tokens in the batch
};

/// Per-token inputs of a micro-batch: positions i32 [T], cu_seqlens i32 [n+1], rotary tables, and in generation the
/// layer's key/value cache. If ranks share tokens, positions cover this rank's tokens and cu_seqlens all ranks'.
struct TokenContext {
  ConstTensor positions, cu_seqlens;
  std::vector<RotaryTable> rotary = {};  ///< the model's rotary tables, by index
  ConstTensor cache_rows = {}, cache_blocks = {};
  Tensor key_cache = {}, value_cache = {};
  ConstTensor dropout_seed = {};  ///< i64 [1]; absent outside training
  RouterBalanceRun balance = {};
  const SharedKeys* shared = nullptr;  ///< set if ranks share tokens
};

/// Everything that a stage may access: weights, activations `s`, their gradients `d`.
struct LayerRun {
  Ctx& ctx;
  const LayerWeights& w;
  const TokenContext& tokens;
  std::vector<Tensor>& s;
  std::vector<Tensor>& d;
  Tensor scratch;         ///< for projections: see projection_scratch
  Tensor dense;           ///< for the expansion of a quantized weight
  TensorSet touched;      ///< gradients that already hold a value
  TensorSet found = {};   ///< in the adjoint: gradients of largest magnitudes that were found
  TensorSet unread = {};  ///< while a layer is recomputed: results that nothing reads, which stages may leave out
  std::span<const std::int64_t> strides = {};  ///< by TensorId; empty if all tensors are contiguous
  /// In an adjoint: the largest gradient that the layer does not need meanwhile, which may be overwritten.
  Tensor idle = {};

  const Tensor& value(TensorId t) const { return s[static_cast<std::size_t>(t)]; }
  /// The same for a tensor that a stage may do without: an internal error if it is declared and has no storage.
  Tensor value(const std::optional<TensorId>& t) const {
    check(!t || value(*t), "tensor has no storage");
    return t ? value(*t) : Tensor{};
  }
  const Tensor& gradient(TensorId t) const { return d[static_cast<std::size_t>(t)]; }
  /// Elements between rows of a tensor, if they are not contiguous; otherwise 0. Only stages that have the tensor in
  /// `spaced` get such a tensor. For A x of an adapter: those of its gradient, if that is beside a copy of dy.
  std::int64_t stride(TensorId t) const { return strides.empty() ? 0 : strides[static_cast<std::size_t>(t)]; }
  /// The first contribution to a gradient overwrites it, later ones add: fan-out needs no special case.
  Sink grad(TensorId t) {
    const bool adds = touched.has(t);
    touched.add(t);
    return adds ? accumulate(gradient(t)) : store(gradient(t));
  }
};

/// One step of a layer: its forward, its gradient (adjoint), and what each reads. A tensor has exactly one writer.
/// `weight_reads` are read in the adjoint only for gradients of the stage's own weights, so a stage with frozen weights
/// does not keep them alive.
class Stage {
 public:
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  virtual ~Stage() = default;

  std::string_view name;
  TensorSet reads, writes, adjoint_reads, weight_reads;
  TensorSet spaced;  ///< those whose rows need not be contiguous: see LayerRun::stride

  /// Whether any weight of the stage wants a gradient.
  virtual bool trains(const LayerWeights&) const { return false; }
  virtual void forward(LayerRun& run) const = 0;
  virtual void backward(LayerRun& run) const = 0;
};

/// Whether linear layers that read the same input write their results side by side into one tensor.
enum class ResultLayout : std::uint8_t { apart, joined };

/// Linear layers that read the same input: the A of their adapters share one GEMM and one result tensor.
struct LinearGroup {
  std::vector<LinearId> layers;
  ResultLayout results = ResultLayout::apart;
  TensorId x;     ///< the input
  TensorId lora;  ///< A x of all adapters [T, ranks]
};

/// Experts' matrices that read the same input: one parameter in transformers, which PEFT adapts as one.
struct ExpertsGroup {
  std::string parameter;  ///< "mlp.experts.gate_up_proj"
  std::vector<ExpertsId> layers;
  TensorId lora;  ///< A_e x of every row [T k, r]
};

/// Heads of a layer's keys and values, for the cache in generation.
struct KeyValueShape {
  std::int64_t heads = 0, head_dim = 0;
};

/// A decoder layer as a table: its tensors, its parameters, and the stages over them in order. A family builds it with
/// a LayerBuilder; everything else (memory, recomputation, adapters, quantization, files) is derived from it.
struct Layer {
  std::vector<TensorSpec> tensors;
  std::vector<VectorSpec> vectors;
  std::vector<LinearSpec> linears;
  std::vector<ExpertsSpec> experts;
  std::vector<ParamId> order;  ///< all parameters, in file order
  std::vector<LinearGroup> groups;
  std::vector<ExpertsGroup> expert_groups;
  std::vector<std::unique_ptr<const Stage>> stages;
  TensorId input{}, output{};
  TensorSet residual;  ///< tensors that share the residual stream's gradient, in one buffer
  KeyValueShape key_value;

  const TensorSpec& spec(TensorId t) const { return tensors[static_cast<std::size_t>(t)]; }
  const VectorSpec& spec(VectorId v) const { return vectors[static_cast<std::size_t>(v)]; }
  const LinearSpec& spec(LinearId l) const { return linears[static_cast<std::size_t>(l)]; }
  const ExpertsSpec& spec(ExpertsId e) const { return experts[static_cast<std::size_t>(e)]; }
  TensorSet all() const;
};

void run_forward(const Layer& layer, LayerRun& run);

}  // namespace qtrain
