#pragma once
#include <cstdint>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/gemm.h"

namespace qtrain::ops {

/// An operand in terms of packing: lanes (rows of A, columns of B) times k. Element (lane, k) is data[lane *
/// lane_stride + k * k_stride]; one of the strides is 1.
struct Operand {
  const std::byte* data;
  DType dtype;  // f32 or bf16
  std::int64_t lanes, k, lane_stride, k_stride;
};
Operand rows_of(const Factors& f);     ///< op(A): lanes are the rows of C
Operand columns_of(const Factors& f);  ///< op(B): lanes are the columns of C

/// Lanes [lane, lane + count) and k [k, k + depth) of an operand.
struct PanelRange {
  std::int64_t lane, count, k, depth;
};
/// The layout of a packed panel: `width` lanes (those beyond `count` are zero), in groups of `k_group` values of k, as
/// f32 (k_group 1) or rounded to bf16 (k_group 2; an odd last k is followed by zero).
struct PanelForm {
  int width, k_group;

  std::int64_t bytes(std::int64_t depth) const { return (depth + k_group - 1) / k_group * width * 4; }
};
/// Writes form.bytes(range.depth) bytes, and up to 64 more past the end.
void pack_panel(void* to, const Operand& from, const PanelRange& range, const PanelForm& form);

}  // namespace qtrain::ops
