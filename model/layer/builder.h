#pragma once
#include <map>
#include <optional>
#include <string>

#include "model/layer/layer.h"
#include "model/model_config.h"

namespace qtrain {

/// Builds a layer: the functions of model/stages/ declare parameters and tensors here and append the stages that read
/// and write them. Files hold the parameters in the order of their declaration.
class LayerBuilder {
 public:
  /// Layer `index` of the model; its input is the residual stream [T, hidden_size].
  LayerBuilder(const ModelConfig& config, std::int64_t index);

  const ModelConfig& config() const { return config_; }
  std::int64_t index() const { return index_; }
  TensorId input() const { return layer_.input; }
  /// Elements per row of `t`.
  std::int64_t width(TensorId t) const { return layer_.spec(t).shape.back().fixed; }
  const std::vector<Extent>& shape(TensorId t) const { return layer_.spec(t).shape; }
  const std::string& name(TensorId t) const { return layer_.spec(t).name; }
  /// A name for a tensor that a layer may have several of: `name`, or "NAME2" and so on if that is taken.
  std::string free_name(const std::string& name) const;

  VectorId vector(VectorSpec spec);
  LinearId linear(LinearSpec spec);
  ExpertsId experts(ExpertsSpec spec);
  const LinearSpec& spec(LinearId id) const { return layer_.spec(id); }
  const ExpertsSpec& spec(ExpertsId id) const { return layer_.spec(id); }
  const VectorSpec& spec(VectorId id) const { return layer_.spec(id); }
  TensorId tensor(TensorSpec spec);
  /// Declares A x of the adapters of layers that read the same input x.
  TensorId lora(TensorId x, std::span<const LinearId> layers, ResultLayout results);
  TensorId lora(const std::string& parameter, std::span<const ExpertsId> layers);
  /// Makes tensors share the gradient of the residual stream, as the operands and the result of a sum do.
  void share_residual_gradient(std::initializer_list<TensorId> tensors);
  void set_key_value(KeyValueShape shape) { layer_.key_value = shape; }
  /// Marks a tensor that the recompute policy "selective" recomputes.
  void recompute_selectively(TensorId t) {
    layer_.tensors[static_cast<std::size_t>(t)].selective = Selective::recompute;
  }

  /// Declares the largest magnitude of each row of `t`, which the stage that writes `t` finds if GEMMs are in FP8; a
  /// gradient's are in the gradient of that tensor. Nothing if they are not.
  std::optional<TensorId> declare_largest(TensorId t, HasGradient gradient = HasGradient::no);
  std::optional<TensorId> largest_of(TensorId t) const;

  template <class S>
  void stage(std::unique_ptr<S> stage) {
    layer_.stages.push_back(std::move(stage));
  }

  /// Returns the layer whose result is `output`. Throws an internal error if a tensor has two writers or a stage reads
  /// a tensor that has not been written.
  Layer finish(TensorId output);

 private:
  bool has_name(const std::string& name) const;

  const ModelConfig& config_;
  std::int64_t index_;
  Layer layer_;
  std::map<TensorId, TensorId> largest_;
};

/// Throws an internal error if a tensor has two writers or a stage reads a tensor that has not been written.
void require_order(const Layer& layer);

}  // namespace qtrain
