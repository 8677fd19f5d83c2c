#pragma once
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"

namespace qtrain {

/// LowRank of a matrix [out, in]: B [out, r] and A [r, in].
struct LowRank {
  std::int64_t rank = 0;
  std::vector<float> a, b;
};

// The functions below take a matrix [out, in] in f32 in host memory and compute in double precision. Their bits depend
// neither on the number of threads nor on the processor.

/// The factors of the best approximation of this rank: B A = (U S V^T) / scale with the largest singular values S,
/// which both factors share equally. `rank` is at most the smaller side of the matrix.
struct PrincipalParts {
  std::int64_t rank = 1;
  double scale = 1;
};
LowRank principal_factors(ThreadPool& pool, ConstTensor w, const PrincipalParts& parts);

/// Likewise, but with the singular values and vectors of the matrix restricted to a random subspace, which a number of
/// iterations improves. Source: Halko, Martinsson and Tropp, Finding Structure with Randomness (2011), algorithms 4.4
/// and 5.1, without oversampling, as torch.svd_lowrank.
struct SampledParts {
  std::int64_t rank = 1;
  double scale = 1;
  int iterations = 2;
  std::uint64_t seed = 0, stream = 0;  ///< of the random numbers
};
LowRank sampled_factors(ThreadPool& pool, ConstTensor w, const SampledParts& parts);

/// The first `rank` columns of Q and rows of R in W = Q R, with the signs of LAPACK.
LowRank orthogonal_factors(ThreadPool& pool, ConstTensor w, std::int64_t rank);

/// W - scale * B A, rounded once.
void subtract_factors(ThreadPool& pool, Tensor w, const LowRank& factors, double scale);

}  // namespace qtrain
