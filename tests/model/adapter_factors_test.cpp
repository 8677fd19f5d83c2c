// Factors of matrices that adapters start from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <span>

#include "core/os/stop.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "model/adapter_init/factors.h"
#include "model/adapter_init/symmetric_eigen.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

struct Weight {
  std::int64_t out, in;
  std::vector<float> values;

  Weight(std::int64_t o, std::int64_t i) : out(o), in(i), values(static_cast<std::size_t>(o * i)) {
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = uniform(philox(1, 2, k)[0]) - 0.5f;
  }
  Tensor view() { return view_of(std::span(values), {out, in}); }
};

double norm(std::span<const float> values) {
  return std::sqrt(std::transform_reduce(values.begin(), values.end(), 0.0, std::plus{},
                                         [](float v) { return static_cast<double>(v) * v; }));
}

double element(std::span<const float> a, std::size_t i, std::size_t j, std::size_t stride) {
  return static_cast<double>(a[i * stride + j]);
}

/// The norm of what remains of a matrix without scale * B A.
double rest(Weight w, const LowRank& factors, double scale, int threads = 2) {
  ThreadPool pool(threads);
  subtract_factors(pool, w.view(), factors, scale);
  return norm(w.values);
}

/// A matrix with these singular values, whose singular vectors are those of a cosine transform.
Weight with_singular_values(std::int64_t out, std::int64_t in, const std::vector<double>& s) {
  Weight w(out, in);
  const auto wave = [](std::int64_t n, std::size_t k, std::int64_t i) {
    return std::sqrt(2.0 / static_cast<double>(n)) * std::cos(std::numbers::pi * (static_cast<double>(k) + 1) *
                                                              (static_cast<double>(i) + 0.5) / static_cast<double>(n));
  };
  for (std::int64_t i = 0; i < out; ++i)
    for (std::int64_t j = 0; j < in; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < s.size(); ++k) sum += s[k] * wave(out, k, i) * wave(in, k, j);
      w.values[static_cast<std::size_t>(i * in + j)] = static_cast<float>(sum);
    }
  return w;
}

std::vector<std::pair<std::int64_t, std::int64_t>> shapes() {
  return {{30, 20}, {20, 30}, {24, 24}};
}

TEST(AdapterFactors, PrincipalPartsLeaveTheSmallSingularValues) {
  const std::vector<double> s{7, 5, 5, 3, 2, 0.5, 0.25};
  for (const auto& [out, in] : shapes())
    for (const double scale : {1.0, 2.0})
      for (const std::size_t r : {1u, 3u, 5u, 7u, 12u}) {
        Weight w = with_singular_values(out, in, s);
        ThreadPool pool(2);
        const LowRank f = principal_factors(pool, w.view(), {.rank = static_cast<std::int64_t>(r), .scale = scale});
        double squares = 0;
        for (std::size_t k = r; k < s.size(); ++k) squares += s[k] * s[k];
        EXPECT_NEAR(rest(w, f, scale), std::sqrt(squares), 2e-6) << out << " " << r;
        // Both factors have the square roots of the singular values.
        for (std::size_t k = 0; k < std::min(r, s.size()); ++k) {
          double a = 0, b = 0;
          for (std::size_t j = 0; j < static_cast<std::size_t>(in); ++j)
            a += std::pow(element(f.a, k, j, static_cast<std::size_t>(in)), 2);
          for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) b += std::pow(element(f.b, i, k, r), 2);
          EXPECT_NEAR(a, s[k] / scale, 1e-5);
          EXPECT_NEAR(b, s[k] / scale, 1e-5);
        }
      }
}

TEST(AdapterFactors, SamplesComeNearThePrincipalParts) {
  const std::vector<double> s{7, 5, 5, 3, 0.5, 0.25};
  for (const auto& [out, in] : shapes()) {
    Weight w = with_singular_values(out, in, s);
    ThreadPool pool(2);
    const LowRank f = sampled_factors(pool, w.view(), {.rank = 4, .scale = 2, .iterations = 8, .seed = 3, .stream = 4});
    EXPECT_NEAR(rest(w, f, 2), std::hypot(0.5, 0.25), 1e-5) << out;
    const LowRank rough = sampled_factors(pool, w.view(), {.rank = 4, .scale = 2, .iterations = 0, .seed = 3});
    EXPECT_GT(rest(w, rough, 2), std::hypot(0.5, 0.25) + 1e-4);
  }
}

// A = R has zeros below its diagonal, and the columns of B = Q are orthonormal.
TEST(AdapterFactors, OrthogonalPartsAreThoseOfQr) {
  for (const auto& [out, in] : shapes()) {
    Weight w(out, in);
    constexpr std::size_t r = 6;
    ThreadPool pool(2);
    const LowRank f = orthogonal_factors(pool, w.view(), r);
    for (std::size_t k = 0; k < r; ++k)
      for (std::size_t l = 0; l < r; ++l) {
        double product = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i)
          product += element(f.b, i, k, r) * element(f.b, i, l, r);
        EXPECT_NEAR(product, k == l ? 1 : 0, 1e-6);
        if (l < k) {
          EXPECT_EQ(element(f.a, k, l, static_cast<std::size_t>(in)), 0);
        }
      }
    Weight left = w;
    subtract_factors(pool, left.view(), f, 1);
    for (std::int64_t i = 0; i < out; ++i)
      for (std::size_t j = 0; j < r; ++j)
        EXPECT_NEAR(element(left.values, static_cast<std::size_t>(i), j, static_cast<std::size_t>(in)), 0, 1e-6);
  }
}

TEST(AdapterFactors, OfZerosAreZeros) {
  Weight w(9, 7);
  std::ranges::fill(w.values, 0.0f);
  ThreadPool pool(1);
  for (const LowRank& f :
       {principal_factors(pool, w.view(), {.rank = 3}), sampled_factors(pool, w.view(), {.rank = 3})}) {
    EXPECT_EQ(norm(f.a), 0);
    EXPECT_EQ(norm(f.b), 0);
  }
}

TEST(AdapterFactors, EigenvectorsOfEqualEigenvaluesAreOrthonormal) {
  constexpr std::int64_t n = 40;
  SymmetricMatrix m{n, std::vector<double>(n * n)};
  for (std::int64_t i = 0; i < n; ++i) m.row(i)[i] = i % 3 == 0 ? 2 : 1;
  m.row(4)[5] = m.row(5)[4] = 1;
  ThreadPool pool(2);
  const EigenPairs pairs = largest_eigenpairs(pool, m, n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t l = 0; l <= k; ++l)
      EXPECT_NEAR(std::inner_product(pairs.vectors[k].begin(), pairs.vectors[k].end(), pairs.vectors[l].begin(), 0.0),
                  k == l ? 1 : 0, 1e-12);
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_NEAR(std::inner_product(m.row(i), m.row(i) + n, pairs.vectors[k].begin(), 0.0),
                  pairs.values[k] * pairs.vectors[k][static_cast<std::size_t>(i)], 1e-12);
  }
}

// Checkpoints contain these factors, so they must not depend on the machine.
TEST(AdapterFactors, HaveTheSameBitsEverywhere) {
  Weight w(70, 45);
  const auto digest = [](const LowRank& f) {
    std::string bytes(reinterpret_cast<const char*>(f.a.data()), f.a.size() * sizeof(float));
    bytes.append(reinterpret_cast<const char*>(f.b.data()), f.b.size() * sizeof(float));
    return sha256_of(bytes).substr(0, 16);
  };
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(digest(principal_factors(pool, w.view(), {.rank = 5, .scale = 2})), "04c89d707ab02f73");
    EXPECT_EQ(digest(sampled_factors(pool, w.view(), {.rank = 5, .scale = 2, .iterations = 3, .seed = 1})),
              "5299aafe5d2f6dcf");
    EXPECT_EQ(digest(orthogonal_factors(pool, w.view(), 5)), "0d0ff740b142311c");
  }
}

// Those of the matrices of a large model take minutes each.
TEST(AdapterFactors, ADecompositionEndsIfAStopIsRequested) {
  Weight w(600, 400);
  ThreadPool pool(2);
  set_stop_requested(true);
  test::error_of(ErrorKind::stopped, [&] { principal_factors(pool, w.view(), {.rank = 4}); });
  set_stop_requested(false);
  EXPECT_EQ(principal_factors(pool, w.view(), {.rank = 4}).rank, 4);
}

}  // namespace
}  // namespace qtrain
