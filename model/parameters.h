#pragma once
#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "model/adapter_params.h"
#include "model/layer/layer.h"
#include "model/quantized_linear.h"
#include "model/transformer_options.h"

namespace qtrain {

/// Units of parameters, each of which is gathered as a whole when parameters are sharded: each block is one, and the
/// embedding, final norm and head together are the outer unit.
inline constexpr int kOuterUnit = 0;
constexpr int unit_of(std::int64_t layer) {
  return static_cast<int>(layer) + 1;
}

/// A base-model weight that an adapter trains whole, held in the adapter's store.
struct SavedWeight {
  Param* param;
  std::string base;  ///< its name in the base model, which its initial values come from
};

/// The parameters of one layer, indexed by their ids.
struct LayerParams {
  std::vector<Param*> vectors;
  std::vector<LinearParams> linears;
  std::vector<ExpertsParams> experts;

  LinearParams& operator[](LinearId id) { return linears[static_cast<std::size_t>(id)]; }
  const LinearParams& operator[](LinearId id) const { return linears[static_cast<std::size_t>(id)]; }
};

/// All parameters of a model, declared from its layer tables: base weights in one store, what an adapter trains in
/// another.
class Parameters {
 public:
  Parameters(Device device, const TransformerOptions& options, const std::vector<Layer>& layers);

  ParamStore& weights() { return weights_; }
  const ParamStore& weights() const { return weights_; }
  AdapterParams& adapter() { return adapter_; }
  const AdapterParams& adapter() const { return adapter_; }
  const std::deque<QuantizedLinear>& quantized() const { return quantized_; }
  const std::vector<SavedWeight>& saved() const { return saved_; }

  const LinearParams& embedding() const { return embedding_; }  ///< its adapter: A [rows, r] and B [width, r]
  const LinearParams& head() const { return head_; }
  const Param& final_norm() const { return *final_norm_; }
  const LayerParams& layer(std::int64_t l) const { return layers_[static_cast<std::size_t>(l)]; }
  const std::vector<LayerParams>& layers() const { return layers_; }

  /// Whether the head shares the embedding's weight.
  bool has_tied_head() const { return head_.weight == embedding_.weight; }
  /// Whether a parameter is part of a quantized weight.
  bool is_quantized_part(const Param& p) const;
  /// Whether the parameter is a lookup table that no GEMM reads.
  bool is_looked_up(const Param& p) const;
  /// Whether GEMMs read the parameter in the type it is held in (including biases, which GEMMs add).
  bool is_operand(const Param& p) const;
  std::vector<Param*> trained();
  /// The stores of the base model's weights and of the adapter.
  std::array<const ParamStore*, 2> stores() const { return {&weights_, &adapter_.store()}; }
  /// Number of elements of the base model's weights, counted unquantized; and the share of linear layers in the blocks,
  /// and of experts.
  std::int64_t elements() const;
  std::int64_t linear_elements() const;
  std::int64_t expert_elements() const;
  /// Bytes of scales and maps of quantized weights, and the number of elements of the largest quantized weight.
  std::size_t quantization_bytes() const;
  std::int64_t largest_quantized() const;
  /// Outputs of the widest layer in a block that has a magnitude.
  std::int64_t widest_decomposed() const;

  /// Allocates memory; with `base`, shares that model's base weights.
  void allocate(const Parameters* base = nullptr);
  /// Random base-model weights, distributed as in transformers.
  void initialize(Ctx& ctx, std::uint64_t seed);

 private:
  Param* declare_base(ParamSpec spec);
  ParamSpec weight_spec(const std::string& name, Shape shape) const;
  Param* declare_vector(const std::string& name, Shape shape, Init init, Decay decay = Decay::no);
  Param* declare_head();
  ParamSpec vector_spec(const std::string& name, Shape shape, Init init, Decay decay) const;
  bool trains_either_whole(const LinearParams& a, const LinearParams& b) const;
  void declare_bias(LinearParams& p, const LinearSpec& spec, const LinearParams* before);
  LinearParams declare_linear(const std::string& module, const LinearSpec& spec, const LinearParams* before);
  void declare_linear(const std::string& prefix, const Layer& layer, LinearId l, LayerParams& p);
  ExpertsParams declare_experts(const std::string& prefix, const ExpertsSpec& spec);
  void declare_scales(const LayerParams& p, std::span<const LinearId> group);
  void declare_layer(std::int64_t index, const Layer& layer);
  void declare_expert_factors(const std::string& prefix, const Layer& layer, LayerParams& p);
  void require_matches() const;
  void initialize_quantized(Ctx& ctx, std::uint64_t seed);

  const TransformerOptions& options_;
  ParamStore weights_;
  AdapterParams adapter_;
  std::deque<QuantizedLinear> quantized_;
  std::vector<SavedWeight> saved_;
  LinearParams embedding_, head_;
  Param* final_norm_ = nullptr;
  std::uint64_t streams_ = 0;  ///< number of dropout streams that layers have taken so far
  std::vector<LayerParams> layers_;
};

}  // namespace qtrain
