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

/// A linear layer and its adapter as parameters.
struct LinearParams {
  std::string module = {};  ///< its whole name
  Param *weight = nullptr, *bias = nullptr, *a = nullptr, *b = nullptr;
  Param *magnitude = nullptr, *norm = nullptr;  ///< with DoRA
  const QuantizedLinear* quantized = nullptr;   ///< instead of weight
  double scale = 1;                             ///< of the adapter
  std::uint64_t stream = 0;                     ///< of its dropout
  LinearKind kind = LinearKind::plain;          ///< a router is adapted by target_parameters only

  Shape shape() const { return quantized ? quantized->shape() : weight->spec.shape; }
  std::int64_t rank() const { return a ? a->spec.shape[0] : 0; }
};

/// The matrices of experts and their adapter as parameters: A of all that read one input is one.
struct ExpertsParams {
  Param *weight = nullptr, *bias = nullptr, *a = nullptr, *b = nullptr;
  std::int64_t part = 0, parts = 1;  ///< which part of B is theirs, [parts, E, out, r]
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
        norms_("row norms", device) {}

  ParamStore& store() { return store_; }
  const ParamStore& store() const { return store_; }
  /// L2 norms of the rows of adapted weights, which DoRA divides by; empty without it.
  const ParamStore& norms() const { return norms_; }

  /// Whether modules_to_save trains a module whole; head and embedding are named together where they stay one.
  bool trains_whole(std::string_view module) const;
  /// Whether a module gets factors, and a layer as what it is.
  bool adapts(std::string_view module) const;
  bool adapts(const LinearParams& layer) const;

  /// Layers that read one input: first all A and then all B, so that each kind is one matrix in memory.
  void declare_factors(std::span<LinearParams* const> layers);
  /// The magnitude of a layer with factors, with DoRA.
  void declare_magnitude(LinearParams& layer);
  /// Of the matrices of experts that are one parameter of transformers, where target_parameters names it. `outer`: of
  /// those of the module that have an adapter it is the last, which PEFT wraps around the others.
  struct ExpertFactors {
    std::string parameter;  ///< "model.layers.0.mlp.experts.gate_up_proj"
    std::span<ExpertsParams* const> layers;
    bool outer = true;
  };
  bool adapts_parameter(std::string_view parameter) const;
  void declare_factors(const ExpertFactors& f);
  /// As PEFT begins: A is zero and B normal. A usage error with DoRA.
  void declare_embedding(LinearParams& embedding, Shape table);

  void allocate();

 private:
  void require_plain(const std::string& what) const;
  Param* declare(const std::string& name, Shape shape, Init init);

  const TransformerOptions& options_;
  ParamStore store_, norms_;
};

}  // namespace qtrain
