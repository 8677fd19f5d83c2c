#pragma once
#include <string>
#include <vector>

#include "kernels/adapter_grads.h"
#include "tests/kernels/support.h"

/// What every backend must compute for the adapters of layers with one input.
namespace qtrain::testing {

struct AdapterGradCase {
  std::int64_t tokens = 0;
  struct LayerSizes {
    std::int64_t outputs, rank;
  };
  std::vector<LayerSizes> layers = {};
  Sink::Mode mode = Sink::Mode::store;
  bool copies = false;
  std::size_t memory = Ctx::kScratchBytes;

  std::int64_t outputs() const {
    std::int64_t sum = 0;
    for (const LayerSizes& l : layers) sum += l.outputs;
    return sum;
  }
  std::int64_t ranks() const {
    std::int64_t sum = 0;
    for (const LayerSizes& l : layers) sum += l.rank;
    return sum;
  }
  std::string text() const {
    std::string all = std::to_string(tokens) + " tokens";
    for (const LayerSizes& l : layers) all += ", " + std::to_string(l.outputs) + " x " + std::to_string(l.rank);
    return all + (mode == Sink::Mode::accumulate ? ", added" : "") + (copies ? ", copied" : "");
  }
};

/// The tiles of a GPU have 64 tokens and 128 outputs, and a block at most 640 tokens.
inline std::vector<AdapterGradCase> adapter_grad_cases() {
  constexpr auto kAdded = Sink::Mode::accumulate;
  return {{.tokens = 1, .layers = {{8, 8}}},
          {.tokens = 64, .layers = {{128, 16}}},
          {.tokens = 130, .layers = {{136, 8}, {16, 16}, {264, 16}}, .mode = kAdded},
          {.tokens = 77, .layers = {{40, 8}, {600, 16}}},
          {.tokens = 77, .layers = {{40, 24}, {60, 32}}},
          {.tokens = 200, .layers = {{264, 8}}, .mode = kAdded},
          {.tokens = 700, .layers = {{72, 16}}},
          {.tokens = 300, .layers = {{520, 16}}, .mode = kAdded, .memory = 64 << 10},
          {.tokens = 30, .layers = {{24, 3}, {9, 64}}},
          {.tokens = 20, .layers = {{24, 16}}, .memory = 0}};
}

/// Rows have other columns beside them, which stay as they are.
class AdapterGradArrays {
 public:
  static constexpr std::int64_t kBeside = 8, kUntouched = 7;

  AdapterGradArrays(const AdapterGradCase& c, DType d, DType of_b)
      : case_(c),
        sums_(d == DType::f64 ? d : DType::f32),
        dy_(random(d, {c.tokens, c.outputs() + kBeside}, 1)),
        u_(random(d, {c.tokens, c.ranks() + kBeside}, 2)),
        du_(d, {c.tokens, c.ranks() + 2 * kBeside}),
        copy_(d, {c.tokens, c.outputs() + 2 * kBeside}) {
    for (Array* array : {&du_, &copy_})
      for (std::int64_t i = 0; i < array->size(); ++i) array->set(i, kUntouched);
    for (const auto& [outputs, rank] : c.layers) {
      b_.push_back(random(of_b, {outputs, rank}, 3));
      db_.push_back(random(sums_, {outputs, rank}, 4));
    }
    before_ = db_;
  }

  void run(Ctx& ctx) {
    ops::AdapterGrads op = op_of();
    ops::adapter_grads(ctx, op);
    ctx.synchronize();
  }
  bool reads_once(Ctx& ctx) { return ops::reads_once(ctx, op_of()); }

  /// Sums of products in f64, of which a result has an error of `digits` and of the roundings of a sum in f32.
  void expect(double digits) const {
    std::int64_t first = 0, column = 0;
    for (std::size_t i = 0; i < case_.layers.size(); ++i) {
      expect_layer(i, first, column, digits);
      first += case_.layers[i].rank;
      column += case_.layers[i].outputs;
    }
    for (std::int64_t t = 0; t < case_.tokens; ++t) {
      for (std::int64_t c = case_.ranks(); c < du_.shape()[1]; ++c)
        ASSERT_EQ(du_.get(t * du_.shape()[1] + c), kUntouched) << case_.text();
      for (std::int64_t c = 0; c < copy_.shape()[1]; ++c)
        ASSERT_EQ(copy_.get(t * copy_.shape()[1] + c),
                  case_.copies && c < case_.outputs() ? dy(t, c) : static_cast<double>(kUntouched))
            << case_.text();
    }
  }

 private:
  static Tensor columns(Array& all, std::int64_t first, std::int64_t count) {
    Tensor t = all;
    t.data += static_cast<std::size_t>(first) * size_of(t.dtype);
    t.shape = {t.shape[0], count};
    return t;
  }
  static double scale_of(std::size_t layer) { return 0.5 + static_cast<double>(layer); }
  double dy(std::int64_t t, std::int64_t c) const { return dy_.get(t * dy_.shape()[1] + c); }
  double u(std::int64_t t, std::int64_t c) const { return u_.get(t * u_.shape()[1] + c); }

  ops::AdapterGrads op_of() {
    ops::AdapterGrads op{.dy_stride = dy_.shape()[1],
                         .u_stride = u_.shape()[1],
                         .du_stride = du_.shape()[1],
                         .copy_stride = copy_.shape()[1],
                         .memory = case_.memory};
    std::int64_t first = 0, column = 0;
    for (std::size_t i = 0; i < case_.layers.size(); ++i) {
      const auto [outputs, rank] = case_.layers[i];
      op.layers[i] = {.dy = columns(dy_, column, outputs),
                      .b = b_[i],
                      .u = columns(u_, first, rank),
                      .du = columns(du_, first, rank),
                      .db = {db_[i], case_.mode},
                      .scale = scale_of(i)};
      if (case_.copies) op.layers[i].copy = columns(copy_, column, outputs);
      first += rank;
      column += outputs;
    }
    return op;
  }

  void expect_layer(std::size_t i, std::int64_t first, std::int64_t column, double digits) const {
    const auto [outputs, rank] = case_.layers[i];
    const double sums = sums_ == DType::f64 ? 1e-12 : 1e-6;
    for (std::int64_t r = 0; r < rank; ++r) {
      for (std::int64_t t = 0; t < case_.tokens; ++t) {
        double sum = 0, sizes = 0;
        for (std::int64_t n = 0; n < outputs; ++n) {
          const double term = scale_of(i) * dy(t, column + n) * b_[i].get(n * rank + r);
          sum += term;
          sizes += std::abs(term);
        }
        ASSERT_NEAR(du_.get(t * du_.shape()[1] + first + r), sum, digits * std::abs(sum) + sums * sizes)
            << case_.text() << ": du " << t << " " << r;
      }
      for (std::int64_t n = 0; n < outputs; ++n) {
        double sum = case_.mode == Sink::Mode::accumulate ? before_[i].get(n * rank + r) : 0, sizes = std::abs(sum);
        for (std::int64_t t = 0; t < case_.tokens; ++t) {
          const double term = dy(t, column + n) * u(t, first + r);
          sum += term;
          sizes += std::abs(term);
        }
        ASSERT_NEAR(db_[i].get(n * rank + r), sum, sums * sizes) << case_.text() << ": dB " << n << " " << r;
      }
    }
  }

  const AdapterGradCase case_;
  DType sums_;
  Array dy_, u_, du_, copy_;
  std::vector<Array> b_, db_, before_;
};

/// Half a unit of the last digit, relative to the value.
inline double rounding_of(DType d) {
  return d == DType::bf16 ? 0x1p-8 : d == DType::f16 ? 0x1p-11 : d == DType::f32 ? 0x1p-23 : 0;
}

inline void computes_adapter_grads(Ctx& ctx, DType d) {
  for (const AdapterGradCase& c : adapter_grad_cases()) {
    AdapterGradArrays arrays(c, d, d);
    arrays.run(ctx);
    arrays.expect(rounding_of(d));
  }
}

}  // namespace qtrain::testing
