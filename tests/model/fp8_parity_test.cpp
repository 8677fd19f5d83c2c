// What GEMMs in FP8 do to gradients and to learning, compared with float32.
#include <gtest/gtest.h>

#include <numeric>

#include "core/fp8.h"
#include "model/projection.h"
#include "tests/kernels/fp8_cases.h"
#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

/// A matrix of doubles.
struct Matrix {
  std::int64_t rows, columns;
  Values v;

  double at(std::int64_t r, std::int64_t c) const { return v[static_cast<std::size_t>(r * columns + c)]; }
  Matrix turned() const {
    Matrix t{columns, rows, {}};
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t r = 0; r < rows; ++r) t.v.push_back(at(r, c));
    return t;
  }
  Matrix times(const Matrix& b) const {
    Matrix c{rows, b.columns, Values(static_cast<std::size_t>(rows * b.columns))};
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < b.columns; ++j)
        for (std::int64_t k = 0; k < columns; ++k)
          c.v[static_cast<std::size_t>(i * b.columns + j)] += at(i, k) * b.at(k, j);
    return c;
  }
};

/// The values of x in an FP8 format with the current scale of Transformer Engine: the largest magnitude becomes the
/// largest number of the format.
template <class F>
Matrix in_fp8(const Array& x) {
  return {x.shape()[0], x.shape()[1], rounded_to_fp8<F>(x, x.shape()[1])};
}

double length_of(const Values& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}
/// The length of got - want, relative to that of want.
double distance(const Values& got, const Values& want) {
  Values apart = want;
  for (std::size_t i = 0; i < want.size(); ++i) apart[i] = got[i] - want[i];
  return length_of(apart) / length_of(want);
}

/// Every operand is rounded once: x and W to E4M3, dy to E5M2, W and dy of joined layers with one scale; sums are not
/// rounded.
TEST(Fp8Layer, RoundsOperandsAndNothingElse) {
  constexpr std::int64_t kTokens = 21, kIn = 48, kOut[] = {32, 16}, kAll = 48;
  Ctx ctx({}, MatmulPrecision::storage, 1);
  Array x = random(DType::f32, {kTokens, kIn}, 1), w = random(DType::f32, {kAll, kIn}, 2),
        dy = random(DType::f32, {kTokens, kAll}, 3), y(DType::f32, {kTokens, kAll}), dx(DType::f32, {kTokens, kIn}),
        dw(DType::f32, {kAll, kIn});
  // Operands of different size, whose scales must not be confused; the second layer's are smaller than the first's.
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 300 * x.get(i));
  for (std::int64_t i = 0; i < dy.size(); ++i) dy.set(i, (i % kAll < kOut[0] ? 1e-6 : 1e-8) * dy.get(i));
  for (std::int64_t i = kOut[0] * kIn; i < w.size(); ++i) w.set(i, 0.01 * w.get(i));
  Projection layers[2];
  ProjectionForward f{.y_stride = kAll, .x = x};
  ProjectionBackward b{.dy_stride = kAll, .dx = store(dx), .x = x};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    layers[i] = {
        .weight = w.tensor().slice(first, kOut[i]), .dweight = store(dw.tensor().slice(first, kOut[i])), .fp8 = true};
    const auto part = [&](Array& whole) {
      Tensor t = whole;
      t.data += static_cast<std::size_t>(first) * sizeof(float);
      t.shape = {kTokens, kOut[i]};
      return t;
    };
    f.layers.push_back({layers[i], part(y)});
    b.layers.push_back({layers[i], part(dy)});
    first += kOut[i];
  }
  project(ctx, f);
  project_grad(ctx, b);
  const Matrix qx = in_fp8<E4m3>(x), qw = in_fp8<E4m3>(w), qdy = in_fp8<E5m2>(dy);
  // Sums of f32 are off by far less than 2^-9 of a rounding to FP8.
  EXPECT_LT(distance(y.values(), qx.times(qw.turned()).v), 1e-6);
  EXPECT_LT(distance(dx.values(), qdy.times(qw).v), 1e-6);
  EXPECT_LT(distance(dw.values(), qdy.turned().times(qx).v), 1e-6);
}

/// Rows that follow a rule: each token is followed by one of two, so that a model has something to learn.
std::vector<LabeledRow> rows_of_step(int step) {
  constexpr std::int32_t kTokens = 64;
  std::vector<LabeledRow> rows;
  for (int r = 0; r < 4; ++r) {
    LabeledRow row;
    auto token = static_cast<std::int32_t>(philox(5, 1, static_cast<std::uint64_t>(4 * step + r))[0] % kTokens);
    for (std::uint64_t i = 0; i < 24; ++i) {
      row.ids.push_back(token);
      const bool other = philox(6, static_cast<std::uint64_t>(4 * step + r), i)[0] % 4 == 0;
      token = (token * 5 + (other ? 17 : 3)) % kTokens;
    }
    row.labels = row.ids;
    rows.push_back(std::move(row));
  }
  return rows;
}

TransformerOptions learner(bool fp8, std::optional<LoraConfig> lora = {}) {
  TransformerOptions options = options_of({.name = "learner",
                                           .config = {{"vocab_size", 64},
                                                      {"hidden_size", 64},
                                                      {"intermediate_size", 160},
                                                      {"num_hidden_layers", 3},
                                                      {"head_dim", 16},
                                                      {"initializer_range", 0.12}},
                                           .lora = std::move(lora)});
  options.activation_dtype = DType::f32;
  options.join = JoinProjections::always;  // as on a GPU
  options.fp8 = fp8;
  return options;
}

// A number in E4M3 is off by 2.5 % of its size in the root mean square, one in E5M2 by 5 %. Errors of the terms of a
// sum are independent, so a GEMM's y is off by 3.6 % and its dx and dW by 5.6 %. What reaches the first of three blocks
// has passed 12 GEMMs in each direction: sqrt(12 (0.036^2 + 0.056^2)) = 23 %. The gradient of softmax subtracts
// similar numbers, so those of q and k may be off twice as much. A wrong scale changes a gradient by half or more.
TEST(Fp8Gradients, AreNearThoseOfFloat32) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(rows_of_step(0));
  const auto grads = [&](bool fp8) {
    const auto model = planned_model(ctx, learner(fp8), batch.size());
    model->runner.initialize_weights(ctx, 3);
    return train_step(ctx, *model, {batch}, {}).grads;
  };
  const NamedValues want = grads(false), got = grads(true);
  Values all_want, all_got;
  for (const auto& [name, g] : want) {
    const double apart = distance(got.at(name), g);
    EXPECT_GT(apart, 0) << name;
    EXPECT_LT(apart, 0.46) << name;
    all_want.insert(all_want.end(), g.begin(), g.end());
    all_got.insert(all_got.end(), got.at(name).begin(), got.at(name).end());
  }
  EXPECT_LT(distance(all_got, all_want), 0.23);
}

/// Adam with bias correction, in doubles.
class Adam {
 public:
  explicit Adam(double rate) : rate_(rate) {}
  void update(const std::vector<Param*>& params) {
    ++steps_;
    for (Param* p : params) {
      const auto values = p->value.span<float>();
      const auto grads = p->grad.span<float>();
      Values &m = m_[p->spec.name], &v = v_[p->spec.name];
      m.resize(values.size());
      v.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        m[i] += 0.1 * (grads[i] - m[i]);
        v[i] += 0.001 * (double{grads[i]} * grads[i] - v[i]);
        const double mean = m[i] / (1 - std::pow(0.9, steps_)), square = v[i] / (1 - std::pow(0.999, steps_));
        values[i] -= static_cast<float>(rate_ * mean / (std::sqrt(square) + 1e-8));
      }
    }
  }

 private:
  double rate_;
  int steps_ = 0;
  NamedValues m_, v_;
};

constexpr int kUpdates = 40;

Values losses(const TransformerOptions& options, double rate) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto model = planned_model(ctx, options, Ragged(rows_of_step(0)).size());
  model->runner.initialize_weights(ctx, 3);
  model->adapter().initialize(ctx, 4);
  model->runner.values_changed();
  Adam adam(rate);
  Values out;
  for (int i = 0; i < kUpdates; ++i) {
    const Ragged batch(rows_of_step(i));
    const auto targets = static_cast<double>(batch.targets());
    out.push_back(train_step(ctx, *model, {batch}, {.scale = 1 / targets}).loss_sum / targets);
    adam.update(model->trained());
    model->runner.values_changed();
  }
  return out;
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Noise in the gradients delays learning a little: of ten updates, the mean loss differs by less than twice of what it
// does here (1.5 %), and it falls as far.
void expect_same_curve(const std::optional<LoraConfig>& lora, double rate) {
  constexpr std::size_t kWindow = 10;
  const Values want = losses(learner(false, lora), rate), got = losses(learner(true, lora), rate);
  EXPECT_LT(want.back(), 0.8 * want.front()) << "there is something to learn";
  for (std::size_t i = 0; i < want.size(); i += kWindow) {
    const double expected = mean(std::span(want).subspan(i, kWindow));
    EXPECT_NEAR(mean(std::span(got).subspan(i, kWindow)), expected, 0.03 * expected) << "from update " << i;
  }
}

TEST(Fp8Learning, FollowsFloat32WithAllWeights) {
  expect_same_curve({}, 3e-3);
}

TEST(Fp8Learning, FollowsFloat32WithAnAdapter) {
  LoraConfig lora = adapter_on({"all-linear"});
  lora.r = 8;
  expect_same_curve(lora, 1e-2);
}

}  // namespace
}  // namespace qtrain::testing
