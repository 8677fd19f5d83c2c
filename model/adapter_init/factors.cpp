#include "model/adapter_init/factors.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/os/stop.h"
#include "core/rng.h"
#include "model/adapter_init/symmetric_eigen.h"
#include "model/adapter_init/vectors.h"

namespace qtrain {
namespace {

/// A matrix [rows, columns] in double precision.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double* row(std::int64_t i) { return values.data() + i * columns; }
  const double* row(std::int64_t i) const { return values.data() + i * columns; }
};

template <class F>
void for_blocks(ThreadPool& pool, std::int64_t count, std::int64_t size, const F& body) {
  pool.run((count + size - 1) / size, [&](std::int64_t task, int) {
    const std::int64_t begin = task * size;
    body(begin, std::min(count, begin + size));
  });
}

/// A matrix of a model, or its transpose.
class Operand {
 public:
  explicit Operand(ConstTensor w) : w_(w), rows_(w.shape[0]), columns_(w.shape[1]) {}

  Operand transposed() const {
    Operand t = *this;
    t.transposed_ = !transposed_;
    return t;
  }
  std::int64_t rows() const { return transposed_ ? columns_ : rows_; }
  std::int64_t columns() const { return transposed_ ? rows_ : columns_; }

  /// M X with X [columns, k].
  Matrix times(ThreadPool& pool, const Matrix& x) const {
    Matrix y(rows(), x.columns);
    constexpr std::int64_t kRows = 32;
    for_blocks(pool, rows(), kRows, [&](std::int64_t begin, std::int64_t end) {
      if (transposed_)
        for (std::int64_t c = 0; c < rows_; ++c)
          for (std::int64_t i = begin; i < end; ++i) add_scaled(y.row(i), at(c, i), x.row(c), x.columns);
      else
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t c = 0; c < columns_; ++c) add_scaled(y.row(i), at(i, c), x.row(c), x.columns);
    });
    return y;
  }

  /// M^T M. Throws ErrorKind::stopped if a stop is requested: it can take minutes.
  SymmetricMatrix gram(ThreadPool& pool) const;

 private:
  static constexpr std::int64_t kPanel = 4;    // columns of a panel of the Gram matrix
  static constexpr std::int64_t kDepth = 256;  // rows that are added at a time

  double at(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(w_.as<float>()[row * columns_ + column]);
  }
  Matrix panels(ThreadPool& pool) const;

  ConstTensor w_;
  std::int64_t rows_, columns_;
  bool transposed_ = false;
};

// [columns / kPanel, rows * kPanel]: each row has the columns of a panel side by side; missing columns are zero.
Matrix Operand::panels(ThreadPool& pool) const {
  Matrix packed((columns() + kPanel - 1) / kPanel, rows() * kPanel);
  for_blocks(pool, packed.rows, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      for (std::int64_t r = 0; r < rows(); ++r)
        for (std::int64_t c = 0; c < std::min(kPanel, columns() - p * kPanel); ++c)
          packed.row(p)[r * kPanel + c] = transposed_ ? at(p * kPanel + c, r) : at(r, p * kPanel + c);
  });
  return packed;
}

using PanelSums = std::array<std::array<double, 4>, 4>;

// Adds the products of `depth` rows of two panels.
void add_products(PanelSums& sums, const double* a, const double* b, std::int64_t depth) {
  PanelSums s = sums;
  for (std::int64_t r = 0; r < depth; ++r, a += 4, b += 4)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 4; ++j) s[i][j] += a[i] * b[j];
  sums = s;
}

SymmetricMatrix Operand::gram(ThreadPool& pool) const {
  const std::int64_t n = columns();
  const Matrix packed = panels(pool);
  SymmetricMatrix g{n, std::vector<double>(static_cast<std::size_t>(n * n))};
  std::vector<PanelSums> sums(static_cast<std::size_t>(packed.rows * packed.rows));
  pool.run(packed.rows, [&](std::int64_t p, int) {
    PanelSums* row = sums.data() + p * packed.rows;
    for (std::int64_t begin = 0; begin < rows(); begin += kDepth) {
      if (stop_requested()) return;
      const std::int64_t depth = std::min(kDepth, rows() - begin);
      for (std::int64_t q = p; q < packed.rows; ++q)
        add_products(row[q], packed.row(p) + begin * kPanel, packed.row(q) + begin * kPanel, depth);
    }
    for (std::int64_t q = p; q < packed.rows; ++q)
      for (std::int64_t i = p * kPanel; i < std::min(n, (p + 1) * kPanel); ++i)
        for (std::int64_t j = q * kPanel; j < std::min(n, (q + 1) * kPanel); ++j) {
          const double sum = row[q][static_cast<std::size_t>(i - p * kPanel)][static_cast<std::size_t>(j - q * kPanel)];
          g.row(i)[j] = sum;
          g.row(j)[i] = sum;
        }
  });
  throw_if_stopped();
  return g;
}

/// Householder's QR decomposition of a matrix [rows, k], column by column.
class Orthonormal {
 public:
  explicit Orthonormal(const Matrix& x) : rows_(x.rows), columns_(x.columns) {
    for (std::int64_t c = 0; c < columns_; ++c) {
      std::vector<double> v(static_cast<std::size_t>(rows_));
      for (std::int64_t i = 0; i < rows_; ++i) v[static_cast<std::size_t>(i)] = x.row(i)[c];
      for (std::int64_t j = 0; j < c; ++j) apply(j, v);
      add_reflection(c, std::move(v));
    }
  }

  /// The first columns of Q: [rows, k].
  Matrix q(ThreadPool& pool) const {
    Matrix q(rows_, columns_);
    pool.run(columns_, [&](std::int64_t c, int) {
      std::vector<double> e(static_cast<std::size_t>(rows_));
      e[static_cast<std::size_t>(c)] = 1;
      for (std::int64_t j = columns_ - 1; j >= 0; --j) apply(j, e);
      for (std::int64_t i = 0; i < rows_; ++i) q.row(i)[c] = e[static_cast<std::size_t>(i)];
    });
    return q;
  }

 private:
  void apply(std::int64_t j, std::vector<double>& x) const {
    const auto at = static_cast<std::size_t>(j);
    const std::int64_t rest = rows_ - j;
    add_scaled(x.data() + j, -tau_[at] * dot(v_[at].data() + j, x.data() + j, rest), v_[at].data() + j, rest);
  }
  // The sign of the diagonal of R is the opposite of x's, as in LAPACK, unless the rest of x is zero: then R has x.
  void add_reflection(std::int64_t c, std::vector<double> x) {
    double* v = x.data() + c;
    const std::int64_t rest = rows_ - c;
    const double norm = norm_of(v, rest);
    const bool is_done = rest == 1 || norm_of(v + 1, rest - 1) == 0;
    if (!is_done) v[0] += v[0] < 0 ? -norm : norm;
    tau_.push_back(is_done ? 0 : 2 / dot(v, v, rest));
    v_.push_back(std::move(x));
  }

  std::int64_t rows_, columns_;
  std::vector<std::vector<double>> v_;
  std::vector<double> tau_;
};

Matrix orthonormal(ThreadPool& pool, const Matrix& x) {
  return Orthonormal(x).q(pool);
}

/// Left singular vectors times singular values Y = M V [rows, k], and right singular vectors V [columns, k].
struct SingularParts {
  Matrix y, v;
};

Matrix columns_of(const std::vector<std::vector<double>>& vectors) {
  Matrix m(static_cast<std::int64_t>(vectors.front().size()), static_cast<std::int64_t>(vectors.size()));
  for (std::int64_t i = 0; i < m.rows; ++i)
    for (std::int64_t k = 0; k < m.columns; ++k)
      m.row(i)[k] = vectors[static_cast<std::size_t>(k)][static_cast<std::size_t>(i)];
  return m;
}

// M is at least as tall as wide.
SingularParts largest_parts(ThreadPool& pool, const Operand& m, std::int64_t rank) {
  Matrix v = columns_of(largest_eigenpairs(pool, m.gram(pool), rank).vectors);
  Matrix y = m.times(pool, v);
  return {std::move(y), std::move(v)};
}

Matrix random_matrix(std::int64_t rows, const SampledParts& parts) {
  Matrix x(rows, parts.rank);
  for (std::size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = static_cast<double>(uniform(philox(parts.seed, parts.stream, i)[0])) - 0.5;
  return x;
}

Matrix multiplied(ThreadPool& pool, const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for_blocks(pool, a.rows, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t k = 0; k < a.columns; ++k) add_scaled(c.row(i), a.row(i)[k], b.row(k), b.columns);
  });
  return c;
}

// M is at least as tall as wide. The singular parts of Q^T M, of which Z = M^T Q is the transpose: its Gram matrix has
// the eigenvectors U, so V S = Z U, and M's left singular vectors are Q U.
SingularParts sampled_parts(ThreadPool& pool, const Operand& m, const SampledParts& parts) {
  Matrix q = orthonormal(pool, m.times(pool, random_matrix(m.columns(), parts)));
  for (int i = 0; i < parts.iterations; ++i) {
    q = orthonormal(pool, m.transposed().times(pool, q));
    q = orthonormal(pool, m.times(pool, q));
  }
  const Matrix z = m.transposed().times(pool, q);
  SymmetricMatrix g{parts.rank, std::vector<double>(static_cast<std::size_t>(parts.rank * parts.rank))};
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t k = 0; k < parts.rank; ++k) add_scaled(g.row(k), z.row(i)[k], z.row(i), parts.rank);
  const Matrix u = columns_of(largest_eigenpairs(pool, std::move(g), parts.rank).vectors);
  return {multiplied(pool, z, u), multiplied(pool, q, u)};  // of M^T
}

/// Whether the rows of Y belong to those of the matrix or to its columns.
enum class RowsOfY : std::uint8_t { out, in };

// B = U sqrt(S / scale) and A = sqrt(S / scale) V^T.
LowRank balanced(const SingularParts& parts, double scale, RowsOfY rows) {
  const bool y_is_left = rows == RowsOfY::out;
  const Matrix &y = parts.y, &v = parts.v;
  const std::int64_t r = y.columns;
  LowRank f{.rank = r, .a = {}, .b = {}};
  const Matrix &left = y_is_left ? y : v, &right = y_is_left ? v : y;
  f.b.resize(static_cast<std::size_t>(left.rows * r));
  f.a.resize(static_cast<std::size_t>(right.rows * r));
  for (std::int64_t k = 0; k < r; ++k) {
    double squares = 0;
    for (std::int64_t i = 0; i < y.rows; ++i) squares += y.row(i)[k] * y.row(i)[k];
    const double s = std::sqrt(squares), root = std::sqrt(s / scale), of_y = s > 0 ? root / s : 0;
    const double of_left = y_is_left ? of_y : root, of_right = y_is_left ? root : of_y;
    for (std::int64_t i = 0; i < left.rows; ++i)
      f.b[static_cast<std::size_t>(i * r + k)] = static_cast<float>(of_left * left.row(i)[k]);
    for (std::int64_t i = 0; i < right.rows; ++i)
      f.a[static_cast<std::size_t>(k * right.rows + i)] = static_cast<float>(of_right * right.row(i)[k]);
  }
  return f;
}

void check_matrix(ConstTensor w, std::int64_t rank) {
  check(w.dtype == DType::f32 && w.shape.rank == 2 && w.device.kind == DeviceKind::cpu, "a matrix in f32 on the host");
  check(0 < rank && rank <= std::min(w.shape[0], w.shape[1]), "the rank of factors is at most that of the matrix");
}

}  // namespace

LowRank principal_factors(ThreadPool& pool, ConstTensor w, const PrincipalParts& parts) {
  check_matrix(w, parts.rank);
  const Operand m(w);
  const bool tall = m.rows() >= m.columns();
  return balanced(largest_parts(pool, tall ? m : m.transposed(), parts.rank), parts.scale,
                  tall ? RowsOfY::out : RowsOfY::in);
}

LowRank sampled_factors(ThreadPool& pool, ConstTensor w, const SampledParts& parts) {
  check_matrix(w, parts.rank);
  const Operand m(w);
  const bool tall = m.rows() >= m.columns();
  return balanced(sampled_parts(pool, tall ? m : m.transposed(), parts), parts.scale,
                  tall ? RowsOfY::in : RowsOfY::out);
}

LowRank orthogonal_factors(ThreadPool& pool, ConstTensor w, std::int64_t rank) {
  check_matrix(w, rank);
  const std::int64_t out = w.shape[0], in = w.shape[1];
  Matrix first(out, rank);
  for (std::int64_t i = 0; i < out; ++i) std::copy_n(w.as<float>() + i * in, rank, first.row(i));
  const Matrix q = orthonormal(pool, first);
  const Matrix r = Operand(w).transposed().times(pool, q);  // [in, rank]
  LowRank f{.rank = rank, .a = std::vector<float>(static_cast<std::size_t>(rank * in)), .b = {}};
  f.b.assign(q.values.begin(), q.values.end());
  for (std::int64_t c = 0; c < in; ++c)
    for (std::int64_t k = 0; k < std::min(rank, c + 1); ++k)
      f.a[static_cast<std::size_t>(k * in + c)] = static_cast<float>(r.row(c)[k]);
  return f;
}

void subtract_factors(ThreadPool& pool, Tensor w, const LowRank& factors, double scale) {
  const std::int64_t in = w.shape[1], r = factors.rank;
  for_blocks(pool, w.shape[0], 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sum(static_cast<std::size_t>(in));
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (std::int64_t k = 0; k < r; ++k) {
        const auto b = static_cast<double>(factors.b[static_cast<std::size_t>(i * r + k)]);
        const float* a = factors.a.data() + k * in;
        for (std::int64_t c = 0; c < in; ++c) sum[static_cast<std::size_t>(c)] += b * static_cast<double>(a[c]);
      }
      float* row = w.as<float>() + i * in;
      for (std::int64_t c = 0; c < in; ++c)
        row[c] = static_cast<float>(static_cast<double>(row[c]) - scale * sum[static_cast<std::size_t>(c)]);
    }
  });
}

}  // namespace qtrain
