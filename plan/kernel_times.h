#pragma once
#include <cstdint>
#include <optional>

#include "plan/gpus.h"

/// What the counts of the CUDA kernels imply for the time of a step (docs/kernels/times.md). Predicted, not measured.
namespace qtrain {

/// Shares of a GPU's peaks that kernels are assumed to reach, and the time between two of them.
struct KernelShares {
  double gemm = 0;         ///< of the data sheet's rate, including the cost of tiles and waves
  double copy = 0;         ///< of the bandwidth, by kernels that only move elements
  double skinny = 0;       ///< of the bandwidth, by the GEMMs of adapters
  double overlap = 0;      ///< of the time that the other units of a multiprocessor take in addition to the busiest
  double gap_seconds = 0;  ///< from one launch to the next
};
/// The assumed shares for a model of this width.
KernelShares kernel_shares(std::int64_t hidden_size);

/// Seconds per FLOP of causal attention; empty for GPUs whose tensor cores the kernels do not use. `shares` says how
/// units overlap.
struct AttentionSeconds {
  double forward = 0, backward = 0;
};
std::optional<AttentionSeconds> attention_seconds(const GpuModel& gpu, const KernelShares& shares);

/// Bytes per token that the kernels between GEMMs move in a block for each element of the hidden state, of queries and
/// keys, and of the MLP's gate, with 16-bit activations.
struct ElementBytes {
  double width = 0, heads = 0, gate = 0;
};
/// `normed`: whether heads have norms.
ElementBytes forward_bytes(bool normed);
ElementBytes backward_bytes(bool normed);

}  // namespace qtrain
