#pragma once
#include <vector>

#include "model/execution_plan.h"

namespace qtrain {

/// Lays out the tensors of one micro-batch in arenas.
class ActivationLayout {
 public:
  ActivationLayout(const Transformer& model, const ExecutionPlan& plan, PlannedPass pass)
      : model_(model), plan_(plan), pass_(pass.pass), size_(pass.largest) {}

  Activations lay_out(ActivationArenas& arenas) const;

 private:
  DType dtype(Precision precision) const;
  Shape shape(std::size_t layer, TensorId t) const;
  Shape memory_shape(std::size_t layer, TensorId t) const;
  std::int64_t stride(std::size_t layer, TensorId t) const;
  std::int64_t joined(std::size_t layer, const LinearGroup& group) const;
  std::int64_t joined_gradient(std::size_t layer, const LinearGroup& group) const;
  bool computes_again(std::size_t layer, const LinearGroup& group) const;
  std::int64_t ranks(std::size_t layer, const ExpertsGroup& group) const;
  std::int64_t max_ranks() const;
  std::int64_t dense_elements() const;
  std::int64_t widest_input() const;
  std::int64_t head_rows() const;
  std::int64_t scratch_elements() const;
  Tensor stream_tensor(Arena& arena) const;
  std::vector<Tensor> residual_stream(Arena& arena) const;
  void add_strides(Activations& a) const;
  void add_layers(Arena& arena, Activations& a) const;
  void add_grads(Arena& arena, Activations& a) const;
  void add_router(Arena& arena, Activations& a) const;
  void add_gathered(Arena& arena, Activations& a) const;
  void add_head(Arena& arena, Activations& a) const;

  const Transformer& model_;
  const ExecutionPlan& plan_;
  Pass pass_;
  BatchSize size_;
};

}  // namespace qtrain
