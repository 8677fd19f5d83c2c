#pragma once
#include <cstdint>
#include <vector>

#include "kernels/gemm.h"
#include "model/activations.h"
#include "model/adapter_gemms.h"
#include "model/recompute.h"
#include "model/transformer.h"
#include "model/weight_copies.h"

namespace qtrain {

/// How a model is executed; chosen before memory is allocated.
struct ExecutionChoice {
  RecomputeChoice recompute = {};
  KeepCopies dense_copies = KeepCopies::no;    ///< of quantized weights
  KeepCopies operand_copies = KeepCopies::no;  ///< of float32 weights in the 16-bit type of GEMMs
  AdapterGemms adapter_gemms = AdapterGemms::by_size;
};

/// The dtype of the logits and the maximum number of rows that the LM head computes at a time: about 64 MiB of logits
/// on a CPU, 1 GiB on a GPU. In bf16 training logits are bf16, as in transformers; their gradient does not fit in
/// float16.
struct HeadChunk {
  DType logits = DType::f32;
  std::int64_t rows = 0;
};

/// What each pass computes and saves for the backward pass, and the address of every tensor. Immutable.
class ExecutionPlan {
 public:
  /// The model must outlive this. Throws a usage error if the choice is contradictory.
  ExecutionPlan(const Transformer& model, const ExecutionChoice& choice, std::vector<PlannedPass> passes);

  const ExecutionChoice& choice() const { return choice_; }
  const std::vector<PlannedPass>& passes() const { return passes_; }
  /// The longest sequence of any pass, which is the number of rows of the rotary tables.
  std::int64_t longest() const { return longest_; }
  /// The largest number of tokens of a pass of that kind; 0 if there is none.
  std::int64_t most_tokens(Pass pass) const;
  const RecomputePlan& recompute(std::int64_t layer) const { return recompute_[static_cast<std::size_t>(layer)]; }
  /// The number of blocks in a group, of which only the first saves its input and the others recompute theirs; and the
  /// number of groups.
  std::int64_t group() const { return choice_.recompute.policy.group(); }
  std::int64_t groups() const;
  bool offloads_inputs() const { return choice_.recompute.inputs == BlockInputs::host; }
  HeadChunk head_chunk(Pass pass) const;

  /// Lays out the tensors of a micro-batch; `positions` is replaced by the longest sequence of any pass.
  Activations lay_out(ActivationArenas& arenas, Pass pass, BatchSize size) const;
  /// Lays out every pass in the same memory and returns the bytes it takes.
  ActivationBytes lay_out_all(ActivationArenas& arenas) const;
  /// Bytes that the GEMMs of all passes convert on a GPU.
  ops::GemmMemory gemm_memory(const OperandCopies& operands) const;

 private:
  void reserve_fp8(ops::GemmMemory& memory) const;

  const Transformer& model_;
  ExecutionChoice choice_;
  std::vector<PlannedPass> passes_;
  std::int64_t longest_ = 0;
  std::vector<RecomputePlan> recompute_;
};

}  // namespace qtrain
