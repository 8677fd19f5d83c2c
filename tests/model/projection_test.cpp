#include "model/projection.h"

#include "kernels/elementwise.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {
namespace {

constexpr std::int64_t kRows = 5, kIn = 8;

/// Two layers with adapters that read the same input, in f64; their A are contiguous or separate.
struct TwoLayers {
  enum class Memory { stacked, apart };

  struct Part {
    std::int64_t out, rank;
  };
  static constexpr Part kParts[] = {{6, 2}, {7, 3}};

  Array both_a = random(DType::f64, {5, kIn}, 1), both_da{DType::f64, {5, kIn}};
  Array gap{DType::f64, {64}}, a[2], da[2];
  Array w[2], b[2], db[2], y[2], dy[2];
  Array x = random(DType::f64, {kRows, kIn}, 2), dx{DType::f64, {kRows, kIn}};
  Array lora_x{DType::f64, {kRows, 5}}, scratch{DType::f64, {kRows * (5 + kIn)}}, seed{DType::i64, {1}};
  Projection layers[2];
  double dropout;

  TwoLayers(Memory memory, double p) : dropout(p) {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto [out, rank] = kParts[i];
      const std::uint64_t salt = 10 * i;
      const std::int64_t row = i == 0 ? 0 : kParts[0].rank;
      w[i] = random(DType::f64, {out, kIn}, 3 + salt);
      b[i] = random(DType::f64, {out, rank}, 4 + salt);
      dy[i] = random(DType::f64, {kRows, out}, 5 + salt);
      db[i] = Array(DType::f64, {out, rank});
      y[i] = Array(DType::f64, {kRows, out});
      a[i] = Array(DType::f64, {rank, kIn});
      da[i] = Array(DType::f64, {rank, kIn});
      for (std::int64_t k = 0; k < rank * kIn; ++k) a[i].set(k, both_a.get(row * kIn + k));
      const bool one = memory == Memory::stacked;
      layers[i] = {.weight = w[i],
                   .lora = {.a = one ? both_a.tensor().slice(row, rank) : a[i].tensor(),
                            .b = b[i],
                            .da = accumulate(one ? both_da.tensor().slice(row, rank) : da[i].tensor()),
                            .db = accumulate(db[i]),
                            .scale = 0.5,
                            .dropout = dropout,
                            .stream = 3}};
    }
  }
  void run(Ctx& ctx) {
    *seed.host<std::int64_t>() = 9;
    const ConstTensor with_seed = dropout > 0 ? ConstTensor(seed) : ConstTensor{};
    project(ctx, {.layers = {{layers[0], y[0]}, {layers[1], y[1]}},
                  .lora_x = lora_x,
                  .x = x,
                  .scratch = scratch,
                  .dropout_seed = with_seed});
    project_grad(ctx, {.layers = {{layers[0], dy[0]}, {layers[1], dy[1]}},
                       .dx = store(dx),
                       .x = x,
                       .lora_x = lora_x,
                       .scratch = scratch,
                       .dropout_seed = with_seed});
  }
  /// w + scale B A of layer i, which without dropout is the whole layer.
  double merged(std::size_t i, std::int64_t row, std::int64_t column) const {
    double sum = w[i].get(row * kIn + column);
    for (std::int64_t r = 0; r < kParts[i].rank; ++r)
      sum += 0.5 * b[i].get(row * kParts[i].rank + r) * a[i].get(r * kIn + column);
    return sum;
  }
};

TEST(Projection, IsTheMergedMatrix) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const auto memory : {TwoLayers::Memory::stacked, TwoLayers::Memory::apart}) {
    TwoLayers l(memory, 0);
    l.run(ctx);
    for (std::int64_t t = 0; t < kRows; ++t) {
      for (std::size_t i = 0; i < 2; ++i)
        for (std::int64_t o = 0; o < TwoLayers::kParts[i].out; ++o) {
          double want = 0;
          for (std::int64_t k = 0; k < kIn; ++k) want += l.x.get(t * kIn + k) * l.merged(i, o, k);
          EXPECT_NEAR(l.y[i].get(t * TwoLayers::kParts[i].out + o), want, 1e-12);
        }
      for (std::int64_t k = 0; k < kIn; ++k) {
        double want = 0;
        for (std::size_t i = 0; i < 2; ++i)
          for (std::int64_t o = 0; o < TwoLayers::kParts[i].out; ++o)
            want += l.dy[i].get(t * TwoLayers::kParts[i].out + o) * l.merged(i, o, k);
        EXPECT_NEAR(l.dx.get(t * kIn + k), want, 1e-12);
      }
    }
  }
}

TEST(Projection, DoesNotDependOnWhereAdaptersLie) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const double dropout : {0.0, 0.4}) {
    TwoLayers one(TwoLayers::Memory::stacked, dropout), two(TwoLayers::Memory::apart, dropout);
    one.run(ctx);
    two.run(ctx);
    const auto expect_near = [](const Array& a, const Array& b) {
      for (std::int64_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a.get(k), b.get(k), 1e-12) << k;
    };
    expect_near(one.dx, two.dx);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      expect_near(one.y[i], two.y[i]);
      expect_near(one.db[i], two.db[i]);
      for (std::int64_t k = 0; k < two.da[i].size(); ++k) {
        EXPECT_NE(two.da[i].get(k), 0);
        EXPECT_NEAR(one.both_da.get(row * kIn + k), two.da[i].get(k), 1e-12);
      }
      row += TwoLayers::kParts[i].rank;
    }
  }
}

// With magnitudes: W x + bias + (m / norm - 1) W d + m / norm scale B A d, where d is x after dropout.
TEST(Projection, WithMagnitudesIsThatOfPeft) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const double dropout : {0.0, 0.4}) {
    TwoLayers l(TwoLayers::Memory::stacked, dropout);
    Array m[2], norm[2], bias[2], scratch{DType::f64, {kRows * (5 + kIn + 7)}};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t out = TwoLayers::kParts[i].out;
      m[i] = random(DType::f64, {out}, 40 + i);
      bias[i] = random(DType::f64, {out}, 50 + i);
      norm[i] = Array(DType::f64, {out});
      measure_rows(ctx, l.layers[i], norm[i], {});
      l.layers[i].lora.magnitude = m[i];
      l.layers[i].lora.norm = norm[i];
      l.layers[i].bias = bias[i];
    }
    l.scratch = std::move(scratch);
    l.run(ctx);
    Array dropped = l.x;
    if (dropout > 0) ops::dropout(ctx, {.y = store(dropped), .x = l.x, .seed = l.seed, .stream = 3, .p = dropout});
    for (std::size_t i = 0; i < 2; ++i)
      for (std::int64_t o = 0; o < TwoLayers::kParts[i].out; ++o) {
        double squares = 0;
        for (std::int64_t k = 0; k < kIn; ++k) squares += l.merged(i, o, k) * l.merged(i, o, k);
        EXPECT_NEAR(norm[i].get(o), std::sqrt(squares), 1e-12);
        const double share = m[i].get(o) / std::sqrt(squares);
        for (std::int64_t t = 0; t < kRows; ++t) {
          double want = bias[i].get(o);
          for (std::int64_t k = 0; k < kIn; ++k) {
            const double w = l.w[i].get(o * kIn + k), d = dropped.get(t * kIn + k);
            want += w * l.x.get(t * kIn + k) + (share - 1) * w * d + share * (l.merged(i, o, k) - w) * d;
          }
          EXPECT_NEAR(l.y[i].get(t * TwoLayers::kParts[i].out + o), want, 1e-12) << "dropout " << dropout;
        }
      }
  }
}

}  // namespace
}  // namespace qtrain::testing
