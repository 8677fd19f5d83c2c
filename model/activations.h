#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "model/input_offload.h"
#include "model/model_config.h"
#include "model/stage.h"

namespace qtrain {

/// What activations are wanted for.
enum class Pass : std::uint8_t {
  train,     ///< forward and backward
  evaluate,  ///< loss only
  decode,    ///< logits against a key/value cache
};

/// Sizes of one micro-batch, or the largest of a run.
struct BatchSize {
  std::int64_t tokens = 0;
  std::int64_t positions = 0;  ///< longest sequence: rows of the rotary tables
  std::int64_t targets = 0;    ///< rows that reach the head
};

/// A pass and its largest batch.
struct PlannedPass {
  Pass pass = Pass::train;
  BatchSize largest;
};

/// Bytes of the memory that passes share, how many of them the loss head and the dense form of a quantized weight take,
/// and those of pinned memory.
struct ActivationBytes {
  std::size_t total = 0, head = 0, dense = 0, pinned = 0;
};

/// The memory in which a quantized weight becomes dense: that of the largest.
struct DenseWeight {
  std::int64_t elements = 0;
  DType dtype = DType::f32;
};

/// Ranks of the adapters in a block, for the layers that read one input in sum; the most of any block.
struct LoraRanks {
  std::int64_t qkv = 0, o = 0, gate_up = 0, down = 0;

  std::int64_t most() const { return std::max({qkv, o, gate_up, down}); }
};

/// Everything that decides the layout of activations besides the batch.
struct ActivationPlan {
  const ModelConfig* config;
  DType dtype;  ///< f32, bf16, f16, or f64 in gradient checks; statistics have at least f32
  LoraRanks lora_ranks = {};
  double lora_dropout = 0;
  std::int64_t widest_decomposed = 0;  ///< results of a layer with a magnitude, the head not counted
  bool head_decomposed = false;
  std::int64_t embedding_rank = 0, head_rank = 0;  ///< of adapters on them
  RecomputePlan recompute;
  BlockInputs inputs = BlockInputs::device;
  DeviceKind device = DeviceKind::cpu;
  DenseWeight dense = {};
};

/// Buffers of the loss head for one chunk of rows: gathered hidden states, normed ones, logits, and gradients.
struct HeadBuffers {
  Tensor hidden, normed, inv_rms, logits, loss, d_hidden, d_normed;
  Tensor lora_x;          ///< of the head's adapter
  std::size_t bytes = 0;  ///< of all of them
};

/// The tensors of one micro-batch. Building it twice (once on a measuring arena) is the memory plan.
struct Activations {
  Tensor cos, sin;
  std::vector<Slots> layers;
  std::vector<Tensor> host_inputs;  ///< of each group of blocks, with BlockInputs::host
  Slots grads;
  Tensor scratch;
  Tensor dense;
  HeadBuffers head;
  Tensor final_hidden;   ///< output of the last block
  Tensor residual_grad;  ///< gradient of the residual stream
  Tensor lora_rows;      ///< rows of A of the embedding's adapter [T, r]
};
/// Where they are.
struct ActivationArenas {
  Arena device, pinned;

  explicit ActivationArenas(Device d) : device("activations", d), pinned("inputs of blocks", d, Placement::pinned) {}
  void reset();
  void commit();
};
Activations lay_out_activations(ActivationArenas& arenas, const ActivationPlan& plan, Pass pass, BatchSize size);

/// The type of the logits and the most rows of the head that are computed at a time: logits of about 64 MiB on a
/// processor, 1 GiB on a GPU. In bf16 training they are bf16, as in transformers; float16 could not hold their
/// gradient.
struct HeadChunk {
  DType logits = DType::f32;
  std::int64_t rows = 0;
};
HeadChunk plan_head_chunk(const ActivationPlan& plan, Pass pass);

}  // namespace qtrain
