#include "model/adapter_init/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/os/stop.h"
#include "core/rng.h"
#include "model/adapter_init/vectors.h"

namespace qtrain {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kTiny = std::numeric_limits<double>::min();
constexpr std::int64_t kRowsPerTask = 32;

/// A tridiagonal matrix T = Q^T M Q, and the reflections I - tau v v^T that Q is the product of. The vector of
/// reflection j is in row j of the matrix, from element j + 1 on.
struct Tridiagonal {
  std::vector<double> diagonal, beside, tau;
  SymmetricMatrix reflections;

  std::int64_t n() const { return reflections.n; }
};

/// A rank-2 update M -= v w^T + w v^T that has yet to be applied, to rows and columns from `begin` on.
struct Pending {
  std::vector<double> v, w;  ///< [n], zero before `begin`
};

void update_row(double* row, const Pending& p, std::int64_t i, std::int64_t begin, std::int64_t n) {
  const double vi = p.v[static_cast<std::size_t>(i)], wi = p.w[static_cast<std::size_t>(i)];
  const double *v = p.v.data(), *w = p.w.data();
  for (std::int64_t c = begin; c < n; ++c) row[c] -= vi * w[c] + wi * v[c];
}

/// Turns x [n] into the vector of the reflection that maps x to a multiple of the first unit vector.
struct Reflection {
  double tau = 0, image = 0;
};
Reflection reflect(double* x, std::int64_t n) {
  const double norm = norm_of(x, n);
  if (norm == 0) return {};
  const double image = x[0] > 0 ? -norm : norm;
  x[0] -= image;
  return {.tau = 2 / dot(x, x, n), .image = image};
}

// Each step applies the update of the step before while it multiplies the rest of the matrix by its own vector, so that
// the matrix is read once.
Tridiagonal tridiagonal(ThreadPool& pool, SymmetricMatrix m) {
  const std::int64_t n = m.n;
  const auto size = static_cast<std::size_t>(n);
  Tridiagonal t{.diagonal = std::vector<double>(size),
                .beside = std::vector<double>(size),
                .tau = std::vector<double>(size),
                .reflections = std::move(m)};
  SymmetricMatrix& a = t.reflections;
  Pending pending{std::vector<double>(size), std::vector<double>(size)};
  std::vector<double> product(size);
  for (std::int64_t j = 0; j < n; ++j) {
    throw_if_stopped();
    const auto at = static_cast<std::size_t>(j);
    double* v = a.row(j);
    update_row(v, pending, j, j, n);
    t.diagonal[at] = v[j];
    if (j + 1 == n) break;
    const std::int64_t begin = j + 1, rest = n - begin;
    const Reflection r = reflect(v + begin, rest);
    t.tau[at] = r.tau;
    t.beside[at] = r.image;
    pool.run((rest + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int) {
      const std::int64_t first = begin + task * kRowsPerTask;
      for (std::int64_t i = first; i < std::min(n, first + kRowsPerTask); ++i) {
        update_row(a.row(i), pending, i, begin, n);
        product[static_cast<std::size_t>(i)] = r.tau * dot(a.row(i) + begin, v + begin, rest);
      }
    });
    const double half = r.tau / 2 * dot(product.data() + begin, v + begin, rest);
    pending.v[at] = pending.w[at] = 0;
    for (std::int64_t i = begin; i < n; ++i) {
      pending.v[static_cast<std::size_t>(i)] = v[i];
      pending.w[static_cast<std::size_t>(i)] = product[static_cast<std::size_t>(i)] - half * v[i];
    }
  }
  return t;
}

/// The number of eigenvalues of T below x (Sturm).
std::int64_t count_below(const Tridiagonal& t, double x) {
  std::int64_t count = 0;
  double q = 1;
  for (std::size_t i = 0; i < t.diagonal.size(); ++i) {
    const double e = i == 0 ? 0 : t.beside[i - 1];
    q = t.diagonal[i] - x - e * e / q;
    if (std::abs(q) < kTiny) q = -kTiny;
    count += q < 0 ? 1 : 0;
  }
  return count;
}

/// A bound of the magnitude of all eigenvalues (Gershgorin).
double bound_of(const Tridiagonal& t) {
  double bound = 0;
  for (std::size_t i = 0; i < t.diagonal.size(); ++i) {
    const double before = i == 0 ? 0 : std::abs(t.beside[i - 1]);
    bound = std::max(bound, std::abs(t.diagonal[i]) + before + std::abs(t.beside[i]));
  }
  return bound;
}

/// The eigenvalue that `below` others are smaller than.
double eigenvalue(const Tridiagonal& t, std::int64_t below, double bound) {
  double low = -bound * (1 + 4 * kEpsilon) - kTiny, high = -low;
  while (high - low > 2 * kEpsilon * std::max(std::abs(low), std::abs(high)) + kTiny) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (count_below(t, middle) <= below ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

/// T - x as a product of triangular factors, with row exchanges.
class Shifted {
 public:
  Shifted(const Tridiagonal& t, double x, double bound)
      : a_(t.diagonal), b_(t.beside), c_(a_.size()), factor_(a_.size()), swapped_(a_.size()) {
    for (double& d : a_) d -= x;
    const std::size_t n = a_.size();
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const double below = t.beside[i];
      swapped_[i] = std::abs(below) > std::abs(a_[i]);
      if (swapped_[i]) {
        factor_[i] = a_[i] / below;
        const double next = a_[i + 1];
        a_[i] = below;
        a_[i + 1] = b_[i] - factor_[i] * next;
        b_[i] = next;
        c_[i] = i + 2 < n ? b_[i + 1] : 0;
        if (i + 2 < n) b_[i + 1] = -factor_[i] * c_[i];
      } else if (a_[i] != 0) {
        factor_[i] = below / a_[i];
        a_[i + 1] -= factor_[i] * b_[i];
      }
    }
    const double least = kEpsilon * bound + kTiny;
    for (double& pivot : a_)
      if (std::abs(pivot) < least) pivot = pivot < 0 ? -least : least;
  }

  void solve(std::vector<double>& x) const {
    const std::size_t n = a_.size();
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (swapped_[i]) std::swap(x[i], x[i + 1]);
      x[i + 1] -= factor_[i] * x[i];
    }
    for (std::size_t i = n; i-- > 0;) {
      if (i + 1 < n) x[i] -= b_[i] * x[i + 1];
      if (i + 2 < n) x[i] -= c_[i] * x[i + 2];
      x[i] /= a_[i];
    }
  }

 private:
  std::vector<double> a_, b_, c_, factor_;
  std::vector<bool> swapped_;
};

// Makes x orthogonal to the vectors found so far, of norm 1. Returns its norm before.
double normalize_beside(const std::vector<std::vector<double>>& found, std::vector<double>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  double largest = 0;
  for (const double v : x) largest = std::max(largest, std::abs(v));
  if (largest == 0) return 0;
  for (double& v : x) v /= largest;
  for (const std::vector<double>& other : found) add_scaled(x.data(), -dot(x.data(), other.data(), n), other.data(), n);
  const double norm = norm_of(x.data(), n);
  if (norm > 0)
    for (double& v : x) v /= norm;
  return norm;
}

void fill_start(std::vector<double>& x, std::uint64_t stream) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(uniform(philox(0, stream, i)[0])) - 0.5;
}

std::vector<double> eigenvector(const Shifted& shifted, const std::vector<std::vector<double>>& found, std::size_t n) {
  constexpr int kIterations = 5, kStarts = 8;
  std::vector<double> x(n);
  for (std::uint64_t start = 0; start < kStarts; ++start) {
    fill_start(x, found.size() * kStarts + start);
    double norm = 1;
    for (int i = 0; i < kIterations && norm > 0; ++i) {
      shifted.solve(x);
      norm = normalize_beside(found, x);
      if (norm > 0) norm = normalize_beside(found, x);  // once more, because much may have been subtracted
    }
    if (norm > 0) break;
  }
  return x;
}

// Multiplies the eigenvectors of T by Q.
void reflect_back(ThreadPool& pool, const Tridiagonal& t, std::vector<std::vector<double>>& vectors) {
  constexpr std::int64_t kPerTask = 4;
  const auto count = static_cast<std::int64_t>(vectors.size());
  pool.run((count + kPerTask - 1) / kPerTask, [&](std::int64_t task, int) {
    for (std::int64_t j = t.n() - 2; j >= 0; --j) {
      const std::int64_t begin = j + 1, rest = t.n() - begin;
      const double *v = t.reflections.row(j) + begin, tau = t.tau[static_cast<std::size_t>(j)];
      for (std::int64_t k = task * kPerTask; k < std::min(count, (task + 1) * kPerTask); ++k) {
        double* x = vectors[static_cast<std::size_t>(k)].data() + begin;
        add_scaled(x, -tau * dot(v, x, rest), v, rest);
      }
    }
  });
}

}  // namespace

EigenPairs largest_eigenpairs(ThreadPool& pool, SymmetricMatrix matrix, std::int64_t count) {
  const std::int64_t n = matrix.n;
  check(0 < count && count <= n, "a matrix has as many eigenvalues as rows");
  const Tridiagonal t = tridiagonal(pool, std::move(matrix));
  const double bound = bound_of(t);
  EigenPairs pairs{.values = std::vector<double>(static_cast<std::size_t>(count)), .vectors = {}};
  pool.run(count,
           [&](std::int64_t i, int) { pairs.values[static_cast<std::size_t>(i)] = eigenvalue(t, n - 1 - i, bound); });
  for (const double value : pairs.values)
    pairs.vectors.push_back(eigenvector(Shifted(t, value, bound), pairs.vectors, t.diagonal.size()));
  reflect_back(pool, t, pairs.vectors);
  return pairs;
}

}  // namespace qtrain
