#pragma once
#include "tests/cuda/ptx_kernels.h"

namespace qtrain::testing {

/// One product of a warpgroup, d = a b (+ before) with a [64, 16] and b [16, columns].
struct WarpgroupTask {
  MmaType type;
  int columns;                       ///< 64 or 128
  Words memory;                      ///< what shared memory contains
  std::uint64_t a_matrix, b_matrix;  ///< descriptors, with addresses from the beginning of `memory`
  bool a_transposed, b_transposed;
  Words a = {};       ///< 4 registers per thread: the rows of a, instead of a_matrix
  Reals before = {};  ///< columns / 2 accumulators per thread, only with `a`
};
/// Returns columns / 2 accumulators of each of the 128 threads.
Reals multiply_in_warpgroup(Ctx& ctx, const WarpgroupTask& task);

}  // namespace qtrain::testing
