#pragma once
#include <cstdint>
#include <vector>

#include "kernels/gemm.h"
#include "model/activations.h"
#include "model/parameters.h"
#include "model/recompute.h"
#include "model/weight_copies.h"

namespace qtrain {

/// How a model is run. Chosen before it has memory.
struct ExecutionChoice {
  RecomputeChoice recompute = {};
  KeepCopies dense_copies = KeepCopies::no;    ///< of quantized weights
  KeepCopies operand_copies = KeepCopies::no;  ///< of float32 weights in the 16-bit type of GEMMs
};

/// The parts of a model that a plan is made for; they outlive it.
struct ModelParts {
  Device device;
  const TransformerOptions& options;
  const std::vector<Layer>& layers;
  const Parameters& params;

  const ModelConfig& config() const { return options.config; }
  double dropout() const { return options.lora ? options.lora->dropout : 0; }
};

/// The type of the logits and the most rows of the head that are computed at a time: logits of about 64 MiB on a
/// processor, 1 GiB on a GPU. In bf16 training they are bf16, as in transformers; float16 could not hold their
/// gradient.
struct HeadChunk {
  DType logits = DType::f32;
  std::int64_t rows = 0;
};

/// What is computed for each pass, what of it is saved for the backward pass, and where every tensor lies. Immutable.
class ExecutionPlan {
 public:
  /// A usage error where the choice contradicts itself.
  ExecutionPlan(const ModelParts& parts, const ExecutionChoice& choice, std::vector<PlannedPass> passes);

  const ExecutionChoice& choice() const { return choice_; }
  const std::vector<PlannedPass>& passes() const { return passes_; }
  /// Longest sequence of any pass: rows of the rotary tables.
  std::int64_t longest() const { return longest_; }
  const RecomputePlan& recompute(std::int64_t layer) const { return recompute_[static_cast<std::size_t>(layer)]; }
  /// Blocks that save one input, of the first, and find the others from it; and how many such groups there are.
  std::int64_t group() const { return choice_.recompute.policy.group(); }
  std::int64_t groups() const;
  bool offloads_inputs() const { return choice_.recompute.inputs == BlockInputs::host; }
  HeadChunk head_chunk(Pass pass) const;

  /// Lays out the tensors of a micro-batch; its positions become those of the longest sequence of any pass.
  Activations lay_out(ActivationArenas& arenas, Pass pass, BatchSize size) const;
  /// Lays out every pass in the same memory.
  ActivationBytes lay_out_all(ActivationArenas& arenas) const;
  /// Bytes that GEMMs of the passes convert on a GPU.
  ops::GemmMemory gemm_memory(const OperandCopies& operands) const;

 private:
  ModelParts parts_;
  ExecutionChoice choice_;
  std::vector<PlannedPass> passes_;
  std::int64_t longest_ = 0;
  std::vector<RecomputePlan> recompute_;
};

}  // namespace qtrain
