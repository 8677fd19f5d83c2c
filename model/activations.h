#pragma once
#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "model/layer/layer.h"

namespace qtrain {

/// The kinds of passes.
enum class Pass : std::uint8_t {
  train,     ///< forward and backward
  evaluate,  ///< loss only
  decode,    ///< logits against a key/value cache
};

/// Sizes of one micro-batch, or the largest of a run. If ranks share tokens, tokens and targets count one rank's.
struct BatchSize {
  std::int64_t tokens = 0;
  std::int64_t positions = 0;  ///< longest sequence, which is the number of rows of the rotary tables
  std::int64_t targets = 0;    ///< rows that go through the LM head
};

/// A pass and the largest batch it is planned for.
struct PlannedPass {
  Pass pass = Pass::train;
  BatchSize largest;
};

/// Bytes of the memory that all passes share (total), of which the LM head and loss (head), the dense form of a
/// quantized weight (dense) and other ranks' keys (gathered) take some, and bytes of pinned memory (pinned).
struct ActivationBytes {
  std::size_t total = 0, head = 0, dense = 0, gathered = 0, pinned = 0;
};

/// Buffers of the LM head and loss for one chunk of rows: gathered hidden states, normalized ones, logits, and
/// gradients.
struct HeadBuffers {
  Tensor hidden, normed, inv_rms, logits, loss, d_hidden, d_normed;
  Tensor lora_x;          ///< A x of the head's adapter
  std::size_t bytes = 0;  ///< sum over all buffers
};

/// Sums over the routers of all layers, f64 [E], and the factors for the gradient of the load-balancing loss [E].
struct RouterBuffers {
  Tensor counts, sums, factor;
};

/// The tensors of one micro-batch. Building it twice (once on a measuring arena) is the memory plan.
struct Activations {
  std::vector<RotaryTable> rotary;
  std::vector<std::vector<Tensor>> layers;         ///< per layer, by TensorId
  std::vector<std::vector<Tensor>> grads;          ///< the gradients, likewise, in memory that layers share
  std::vector<std::vector<std::int64_t>> strides;  ///< see LayerRun::stride
  std::vector<Tensor> host_inputs;                 ///< per group of blocks, with BlockInputs::host
  Tensor scratch;
  Tensor dense;
  HeadBuffers head;
  RouterBuffers router;  ///< if the model has experts
  KeyBuffers gathered;   ///< if ranks share tokens
  Tensor final_hidden;   ///< output of the last block
  Tensor residual_grad;  ///< gradient of the residual stream
  Tensor lora_rows;      ///< A x of the embedding's adapter [T, r]
};

/// The memory that activations are laid out in.
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
