#pragma once
#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <memory>
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

/// Tensors of one layer.
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

/// The size of a dimension: so many for each token, and so many in any case.
struct Extent {
  std::int64_t per_token = 0, fixed = 0;

  std::int64_t of(std::int64_t tokens) const { return per_token * tokens + fixed; }
};
inline constexpr Extent kTokens{.per_token = 1};

/// How the elements of a tensor are held.
enum class Precision : std::uint8_t {
  activation,  ///< in the type of the model's activations
  full,        ///< f32, or f64 with f64 activations: statistics and weights of sums
  index,       ///< i32
};
/// Whether a tensor has a gradient, and where.
enum class HasGradient : std::uint8_t { no, yes };
/// What the "selective" recompute policy does with a tensor.
enum class Selective : std::uint8_t { keep, recompute };

struct TensorSpec {
  std::string name;  ///< unique in its layer: the module that writes it, or what it is to that module
  std::vector<Extent> shape;
  Precision precision = Precision::activation;
  HasGradient gradient = HasGradient::yes;
  Selective selective = Selective::keep;

  Shape shape_for(std::int64_t tokens) const;
};

/// A vector parameter, kept in the precision of the sums: weights of norms, sinks of attention.
struct VectorSpec {
  std::string name;  ///< behind "model.layers.N.": "input_layernorm.weight"
  std::int64_t size = 0;
  Init init = {Init::Kind::ones, 0};
  std::string gguf = {};  ///< its name in GGUF files behind "blk.N.": "attn_norm.weight"
  Decay decay = Decay::no;
};

enum class Bias : std::uint8_t { no, yes };
/// Routers of transformers are not linear layers to bitsandbytes and PEFT: they are not quantized, and adapted as
/// parameters only.
enum class LinearKind : std::uint8_t { plain, router };

/// A linear layer [out, in]: quantized where that is asked for, and a target of adapters.
struct LinearSpec {
  std::string module;  ///< behind "model.layers.N.": "self_attn.q_proj"
  std::int64_t out = 0, in = 0;
  Bias bias = Bias::no;
  std::string gguf = {};          ///< "attn_q"
  std::int64_t rotary_heads = 0;  ///< heads that its results are rotated in, 0: none
  LinearKind kind = LinearKind::plain;
  /// What transformers calls it in memory, where adapters are on parameters: "mlp.gate". Empty: `module`.
  std::string parameter = {};
  Init bias_init = {};
};

/// How files hold the matrices of all experts.
enum class ExpertFiles : std::uint8_t {
  apart,   ///< each as a tensor of its own: mlp.experts.N.gate_proj.weight [out, in]
  joined,  ///< as one, mlp.experts.gate_up_proj [count, in, out], or as its MXFP4 blocks; with biases beside it
};

/// The matrices [out, in] of all experts, one tensor [count, out, in].
struct ExpertsSpec {
  std::string module, part;  ///< "mlp.experts" and "gate_proj"
  std::int64_t count = 0, out = 0, in = 0;
  std::string gguf = {};  ///< "ffn_gate_exps"
  ExpertFiles files = ExpertFiles::apart;
  Bias bias = Bias::no;  ///< [count, out]

  /// The name of one expert's tensor in files, behind "model.layers.N.".
  std::string tensor_of(std::int64_t expert) const;
};

/// A norm weight [C] in f32 and where its gradient goes.
struct NormWeight {
  ConstTensor weight = {};
  Sink grad = discard();

  bool present() const { return weight.shape.rank > 0; }
};

/// The matrices of experts [E, out, in] and where their gradients go. With an adapter W_e + scale * B_e A_e: A
/// [E, r, in], which matrices that read one input share, and B [E, out, r].
struct ExpertsWeight {
  ConstTensor weight = {}, bias = {}, a = {}, b = {};  ///< bias [E, out] in f32, or none
  Sink dweight = discard(), dbias = discard(), da = discard(), db = discard();
  double scale = 1;

  bool adapted() const { return a.shape.rank == 3; }
  bool trains() const { return dweight.wanted() || dbias.wanted() || da.wanted(); }
};

/// The parameters of one layer while they are acquired, by their ids.
struct LayerWeights {
  std::vector<NormWeight> vectors;
  std::vector<Projection> linears;
  std::vector<ExpertsWeight> experts;

  const NormWeight& operator[](VectorId id) const;
  const Projection& operator[](LinearId id) const { return linears[static_cast<std::size_t>(id)]; }
  const ExpertsWeight& operator[](ExpertsId id) const { return experts[static_cast<std::size_t>(id)]; }
};

/// Angles of a rotary embedding: cos and sin [positions, R/2], R of a head's elements being turned.
struct RotaryTable {
  Tensor cos, sin;
};

/// What routers give and get for their balance (see ops::RouterBalance): sums over the layers of a pass, f64 [E], and
/// for gradients the factor of each expert [E]. Empty without that loss.
struct RouterBalanceRun {
  Sink counts = discard(), sums = discard();  ///< discarded where a layer is computed once more
  ConstTensor factor = {}, tokens = {};       ///< tokens i32 [1]: how many there are in the documents of the batch
};

/// What the tokens of a micro-batch bring: positions i32 [T], cu_seqlens i32 [n+1], rotary tables, and in generation
/// the key/value cache of the layer. Where ranks share the tokens, positions are those of this rank's and cu_seqlens
/// those of all.
struct TokenContext {
  ConstTensor positions, cu_seqlens;
  std::vector<RotaryTable> rotary = {};  ///< those of the model, by number
  ConstTensor cache_rows = {}, cache_blocks = {};
  Tensor key_cache = {}, value_cache = {};
  ConstTensor dropout_seed = {};  ///< i64 [1]; absent outside training
  RouterBalanceRun balance = {};
  const SharedKeys* shared = nullptr;  ///< where ranks share the tokens
};

/// Everything a stage may touch: weights, activations `s`, their gradients `d`.
struct LayerRun {
  Ctx& ctx;
  const LayerWeights& w;
  const TokenContext& tokens;
  std::vector<Tensor>& s;
  std::vector<Tensor>& d;
  Tensor scratch;     ///< for projections: see projection_scratch
  Tensor dense;       ///< for a quantized weight while it is multiplied
  TensorSet touched;  ///< gradients that already hold a value

  const Tensor& value(TensorId t) const { return s[static_cast<std::size_t>(t)]; }
  const Tensor& gradient(TensorId t) const { return d[static_cast<std::size_t>(t)]; }
  /// The first contribution to a gradient overwrites, later ones add: fan-out needs no special case.
  Sink grad(TensorId t) {
    const bool adds = touched.has(t);
    touched.add(t);
    return adds ? accumulate(gradient(t)) : store(gradient(t));
  }
};

/// One step of a layer: its forward, its adjoint, and what each reads. A tensor has exactly one writer.
/// `weight_reads` is read in the adjoint only for gradients of the stage's own weights, so frozen weights keep nothing
/// alive.
class Stage {
 public:
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  virtual ~Stage() = default;

  std::string_view name;
  TensorSet reads, writes, adjoint_reads, weight_reads;

  /// Whether any weight of the stage wants a gradient.
  virtual bool trains(const LayerWeights&) const { return false; }
  virtual void forward(LayerRun& run) const = 0;
  virtual void backward(LayerRun& run) const = 0;
};

/// Linear layers that read one input: the A of their adapters are one GEMM, whose results are one tensor.
struct LinearGroup {
  std::vector<LinearId> layers;
  TensorId lora;  ///< A x of all adapters [T, ranks]
};

/// Matrices of experts that read one input: transformers holds them as one parameter, and PEFT adapts them as one.
struct ExpertsGroup {
  std::string parameter;  ///< "mlp.experts.gate_up_proj"
  std::vector<ExpertsId> layers;
  TensorId lora;  ///< A_e x of every row [T k, r]
};

/// Sizes of a layer's keys and values, for generation.
struct KeyValueShape {
  std::int64_t heads = 0, head_dim = 0;
};

/// A decoder layer as a table: its tensors, its parameters, and the stages over them in order. A family makes it with a
/// LayerBuilder; everything else (memory, recomputation, adapters, quantization, files) is derived from it.
struct Layer {
  std::vector<TensorSpec> tensors;
  std::vector<VectorSpec> vectors;
  std::vector<LinearSpec> linears;
  std::vector<ExpertsSpec> experts;
  std::vector<ParamId> order;  ///< of all parameters, as files have them
  std::vector<LinearGroup> groups;
  std::vector<ExpertsGroup> expert_groups;
  std::vector<std::unique_ptr<const Stage>> stages;
  TensorId input{}, output{};
  TensorSet residual;  ///< tensors whose gradient is that of the residual stream, one buffer for all
  KeyValueShape key_value;

  const TensorSpec& spec(TensorId t) const { return tensors[static_cast<std::size_t>(t)]; }
  const VectorSpec& spec(VectorId v) const { return vectors[static_cast<std::size_t>(v)]; }
  const LinearSpec& spec(LinearId l) const { return linears[static_cast<std::size_t>(l)]; }
  const ExpertsSpec& spec(ExpertsId e) const { return experts[static_cast<std::size_t>(e)]; }
  TensorSet all() const;
};

void run_forward(const Layer& layer, LayerRun& run);

}  // namespace qtrain
