#pragma once
#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "model/layer/layer.h"

namespace qtrain {

/// What activations are wanted for.
enum class Pass : std::uint8_t {
  train,     ///< forward and backward
  evaluate,  ///< loss only
  decode,    ///< logits against a key/value cache
};

/// Sizes of one micro-batch, or the largest of a run; tokens and targets where ranks share them are those of one rank.
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

/// Bytes of the memory that passes share, how many of them the loss head, the dense form of a quantized weight and keys
/// of other ranks take, and those of pinned memory.
struct ActivationBytes {
  std::size_t total = 0, head = 0, dense = 0, gathered = 0, pinned = 0;
};

/// Buffers of the loss head for one chunk of rows: gathered hidden states, normed ones, logits, and gradients.
struct HeadBuffers {
  Tensor hidden, normed, inv_rms, logits, loss, d_hidden, d_normed;
  Tensor lora_x;          ///< of the head's adapter
  std::size_t bytes = 0;  ///< of all of them
};

/// What routers of all layers add up to, f64 [E], and the factors that the gradient of their balance has [E].
struct RouterBuffers {
  Tensor counts, sums, factor;
};

/// The tensors of one micro-batch. Building it twice (once on a measuring arena) is the memory plan.
struct Activations {
  std::vector<RotaryTable> rotary;
  std::vector<std::vector<Tensor>> layers;  ///< of each layer, by TensorId
  std::vector<std::vector<Tensor>> grads;   ///< the same for gradients, in memory that layers share
  std::vector<Tensor> host_inputs;          ///< of each group of blocks, with BlockInputs::host
  Tensor scratch;
  Tensor dense;
  HeadBuffers head;
  RouterBuffers router;  ///< of models with experts
  KeyBuffers gathered;   ///< where ranks share the tokens
  Tensor final_hidden;   ///< output of the last block
  Tensor residual_grad;  ///< gradient of the residual stream
  Tensor lora_rows;      ///< rows of A of the embedding's adapter [T, r]
};

/// Where they are.
struct ActivationArenas {
  Arena device, pinned;

  explicit ActivationArenas(Device d) : device("activations", d), pinned("inputs of blocks", d, Placement::pinned) {}
  void reset() {
    device.reset();
    pinned.reset();
  }
  void commit() {
    device.commit();
    pinned.commit();
  }
};

}  // namespace qtrain
