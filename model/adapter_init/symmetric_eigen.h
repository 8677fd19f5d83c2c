#pragma once
#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace qtrain {

/// A symmetric matrix [n, n], stored in full.
struct SymmetricMatrix {
  std::int64_t n = 0;
  std::vector<double> values;

  double* row(std::int64_t i) { return values.data() + i * n; }
  const double* row(std::int64_t i) const { return values.data() + i * n; }
};

/// Eigenvalues in descending order, and an orthonormal eigenvector [n] for each.
struct EigenPairs {
  std::vector<double> values;
  std::vector<std::vector<double>> vectors;
};

/// The `count` largest eigenvalues of a symmetric matrix, with eigenvectors. Householder reflections reduce it to a
/// tridiagonal matrix, whose eigenvalues are found by bisection and whose eigenvectors by inverse iteration. The bits
/// do not depend on the number of threads or on the processor: sums have a fixed order, and only +, -, *, / and square
/// roots are used. Source: Golub and Van Loan, Matrix Computations (2013), 8.3 to 8.4.
EigenPairs largest_eigenpairs(ThreadPool& pool, SymmetricMatrix matrix, std::int64_t count);

}  // namespace qtrain
