#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/param_store.h"
#include "model/layer/layer.h"
#include "model/quantized_linear.h"
#include "model/transformer_options.h"

namespace qtrain {

/// The parameters of a linear layer and its adapter.
struct LinearParams {
  std::string module = {};  ///< full module name
  Param *weight = nullptr, *bias = nullptr, *a = nullptr, *b = nullptr;
  Param *magnitude = nullptr, *norm = nullptr;  ///< with DoRA
  const QuantizedLinear* quantized = nullptr;   ///< instead of weight
  double scale = 1;                             ///< scale of the adapter
  std::uint64_t stream = 0;                     ///< random stream of its dropout
  LinearKind kind = LinearKind::plain;          ///< a router is only adapted through target_parameters

  Shape shape() const { return quantized ? quantized->shape() : weight->spec.shape; }
  std::int64_t rank() const { return a ? a->spec.shape[0] : 0; }
};

/// The parameters of the experts' matrices and their adapter: matrices that read the same input share one A.
struct ExpertsParams {
  Param *weight = nullptr, *bias = nullptr, *a = nullptr, *b = nullptr;
  std::int64_t part = 0, parts = 1;  ///< index of their part of B [parts, E, out, r]
  double scale = 1;

  std::int64_t count() const { return weight->spec.shape[0]; }
  std::int64_t rank() const { return a ? a->spec.shape[0] / count() : 0; }
};

/// The parameters that a LoRA adapter adds to a model, under PEFT's names; none without an adapter.
class AdapterParams {
 public:
  AdapterParams(Device device, const TransformerOptions& options)
      : options_(options),
        store_("adapter", device, Placement::device, options.sharding),
        norms_("row norms", device),
        initial_("initial adapter") {}

  ParamStore& store() { return store_; }
  const ParamStore& store() const { return store_; }
  /// L2 norms of the rows of adapted weights, which DoRA divides by; empty without it.
  const ParamStore& norms() const { return norms_; }
  /// The initial factors, in f32 in host memory, under the names of the trained ones, if the base weights are
  /// W - scale * B A of them; otherwise empty.
  ParamStore& initial() { return initial_; }
  const ParamStore& initial() const { return initial_; }

  /// Whether modules_to_save trains the whole module; a tied head and embedding are both named if they stay tied.
  bool trains_whole(std::string_view module) const;
  /// Whether a module, or this layer, gets an adapter.
  bool adapts(std::string_view module) const;
  bool adapts(const LinearParams& layer) const;

  /// Declares the adapters of layers that read the same input: first all A, then all B, so that each is contiguous.
  void declare_factors(std::span<LinearParams* const> layers);
  /// With DoRA, declares the magnitude of an adapted layer.
  void declare_magnitude(LinearParams& layer);
  /// Adapters of expert matrices that are one parameter in transformers, if target_parameters names it. `outer`: this
  /// is the last adapted parameter of its module, whose PEFT wrapper encloses the others.
  struct ExpertFactors {
    std::string parameter;  ///< "model.layers.0.mlp.experts.gate_up_proj"
    std::span<ExpertsParams* const> layers;
    bool outer = true;
  };
  bool adapts_parameter(std::string_view parameter) const;
  void declare_factors(const ExpertFactors& f);
  /// A starts at zero and B random normal, as in PEFT. Throws a usage error with DoRA, and if the factors depend on the
  /// base weights.
  void declare_embedding(LinearParams& embedding, Shape table);

  void allocate();

 private:
  void require_plain(const std::string& what) const;
  void require_own_init(const std::string& what) const;
  void require_rank(const LinearParams& layer) const;
  Init init_of_a(std::int64_t in, std::int64_t rank) const;
  Init init_of_b(std::int64_t rank) const;
  Param* declare(const std::string& name, Shape shape, Init init);
  Param* declare_factor(const std::string& name, Shape shape, Init init);

  const TransformerOptions& options_;
  ParamStore store_, norms_, initial_;
};

}  // namespace qtrain
