// What GEMMs in FP8 do to gradients and to learning, compared with float32.
#include <gtest/gtest.h>

#include <numeric>

#include "core/fp8.h"
#include "model/projection.h"
#include "tests/kernels/fp8_block_cases.h"
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

/// The operands of a layer as their GEMMs see them, in f64.
struct RoundedOperands {
  Matrix x, w, dy, turned_dy, x_of_tokens;
};
RoundedOperands in_one_scale(const Array& x, const Array& w, const Array& dy) {
  const Matrix qx = in_fp8<E4m3>(x), qdy = in_fp8<E5m2>(dy);
  return {qx, in_fp8<E4m3>(w), qdy, qdy.turned(), qx};
}
RoundedOperands in_blocks(const Array& x, const Array& w, const Array& dy) {
  using ops::Transpose;
  const auto rounded = [](const Array& of, Transpose turned, ops::Fp8Block block) {
    const std::int64_t rows = of.shape()[turned == Transpose::yes ? 1 : 0], width = of.size() / rows;
    return Matrix{rows, width, rounded_in_blocks(of, {rows, width}, turned, block)};
  };
  using enum ops::Fp8Block;
  return {rounded(x, Transpose::no, vector), rounded(w, Transpose::no, square), rounded(dy, Transpose::no, vector),
          rounded(dy, Transpose::yes, vector), rounded(x, Transpose::yes, vector).turned()};
}

/// Two layers with the same input whose weights are contiguous, and sizes that end in the middle of blocks.
class Fp8Layer : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 133, kIn = 160, kOut[] = {128, 48}, kAll = 176;

  // Operands of different size, whose scales must not be confused; the second layer's are smaller than the first's.
  Fp8Layer() {
    for (std::int64_t i = 0; i < x_.size(); ++i) x_.set(i, 300 * x_.get(i));
    for (std::int64_t i = 0; i < dy_.size(); ++i) dy_.set(i, (i % kAll < kOut[0] ? 1e-6 : 1e-8) * dy_.get(i));
    for (std::int64_t i = kOut[0] * kIn; i < w_.size(); ++i) w_.set(i, 0.01 * w_.get(i));
  }
  void compute(Fp8Recipe recipe) {
    Ctx ctx({}, MatmulPrecision::storage, 1);
    Projection layers[2];
    ProjectionForward f{.y_stride = kAll, .x = x_};
    ProjectionBackward b{.dy_stride = kAll, .dx = store(dx_), .x = x_};
    std::int64_t first = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      layers[i] = {.weight = w_.tensor().slice(first, kOut[i]),
                   .dweight = store(dw_.tensor().slice(first, kOut[i])),
                   .fp8 = recipe,
                   .fp8_forward = forward_};
      const auto part = [&](Array& whole) {
        Tensor t = whole;
        t.data += static_cast<std::size_t>(first) * sizeof(float);
        t.shape = {kTokens, kOut[i]};
        return t;
      };
      f.layers.push_back({layers[i], part(y_)});
      b.layers.push_back({layers[i], part(dy_)});
      first += kOut[i];
    }
    project(ctx, f);
    project_grad(ctx, b);
  }
  // Sums of f32 are off by far less than 2^-9 of a rounding to FP8.
  void expect_gemms_of(const RoundedOperands& q) {
    EXPECT_LT(distance(y_.values(), q.x.times(q.w.turned()).v), 1e-6);
    EXPECT_LT(distance(dx_.values(), q.dy.times(q.w).v), 1e-6);
    EXPECT_LT(distance(dw_.values(), q.turned_dy.times(q.x_of_tokens).v), 1e-6);
  }

  bool forward_ = true;
  Array x_ = random(DType::f32, {kTokens, kIn}, 1), w_ = random(DType::f32, {kAll, kIn}, 2),
        dy_ = random(DType::f32, {kTokens, kAll}, 3), y_{DType::f32, {kTokens, kAll}}, dx_{DType::f32, {kTokens, kIn}},
        dw_{DType::f32, {kAll, kIn}};
};

/// Every operand is rounded once: x and W to E4M3, dy to E5M2, W and dy of joined layers with one scale; sums are not
/// rounded.
TEST_F(Fp8Layer, RoundsOperandsAndNothingElse) {
  compute(Fp8Recipe::tensorwise);
  expect_gemms_of(in_one_scale(x_, w_, dy_));
}

/// The forward pass can stay as it is.
TEST_F(Fp8Layer, RoundsOnlyForGradients) {
  forward_ = false;
  compute(Fp8Recipe::blockwise);
  const RoundedOperands q = in_blocks(x_, w_, dy_);
  const auto exact = [](const Array& a) { return Matrix{a.shape()[0], a.shape()[1], a.values()}; };
  EXPECT_LT(distance(y_.values(), exact(x_).times(exact(w_).turned()).v), 1e-6);
  EXPECT_LT(distance(dx_.values(), q.dy.times(q.w).v), 1e-6);
  EXPECT_LT(distance(dw_.values(), q.turned_dy.times(q.x_of_tokens).v), 1e-6);
}

/// All to E4M3, and with scales along the inner dimension of each GEMM: those of dW are along the tokens.
TEST_F(Fp8Layer, RoundsOperandsInBlocks) {
  compute(Fp8Recipe::blockwise);
  expect_gemms_of(in_blocks(x_, w_, dy_));
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

TransformerOptions learner(std::optional<Fp8Recipe> fp8, std::optional<LoraConfig> lora = {}) {
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

/// The largest distances of a parameter's gradient, and of all gradients together.
struct Apart {
  double one, all;
};
Apart gradients_apart(Fp8Recipe recipe) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Ragged batch(rows_of_step(0));
  const auto grads = [&](std::optional<Fp8Recipe> fp8) {
    const auto model = planned_model(ctx, learner(fp8), batch.size());
    model->runner.initialize_weights(ctx, 3);
    return train_step(ctx, *model, {batch}, {}).grads;
  };
  const NamedValues want = grads({}), got = grads(recipe);
  Values all_want, all_got;
  Apart apart{};
  for (const auto& [name, g] : want) {
    const double of_one = distance(got.at(name), g);
    EXPECT_GT(of_one, 0) << name;
    apart.one = std::max(apart.one, of_one);
    all_want.insert(all_want.end(), g.begin(), g.end());
    all_got.insert(all_got.end(), got.at(name).begin(), got.at(name).end());
  }
  apart.all = distance(all_got, all_want);
  return apart;
}

// A number in E4M3 is off by 2.5 % of its size in the root mean square, one in E5M2 by 5 %. Errors of the terms of a
// sum are independent, so a GEMM's y is off by 3.6 % and its dx and dW by 5.6 %. What reaches the first of three blocks
// has passed 12 GEMMs in each direction: sqrt(12 (0.036^2 + 0.056^2)) = 23 %. The gradient of softmax subtracts
// similar numbers, so those of q and k may be off twice as much. A wrong scale changes a gradient by half or more.
TEST(Fp8Gradients, AreNearThoseOfFloat32) {
  const Apart apart = gradients_apart(Fp8Recipe::tensorwise);
  EXPECT_LT(apart.one, 0.46);
  EXPECT_LT(apart.all, 0.23);
}

// With gradients in E4M3, too, dx and dW are off by 3.6 %, and together sqrt(12 * 2 * 0.036^2) = 18 %.
TEST(Fp8Gradients, AreNearerWithScalesForBlocks) {
  const Apart apart = gradients_apart(Fp8Recipe::blockwise);
  EXPECT_LT(apart.one, 0.36);
  EXPECT_LT(apart.all, gradients_apart(Fp8Recipe::tensorwise).all);
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
void expect_same_curve(Fp8Recipe recipe, const std::optional<LoraConfig>& lora, double rate) {
  constexpr std::size_t kWindow = 10;
  const Values want = losses(learner({}, lora), rate), got = losses(learner(recipe, lora), rate);
  EXPECT_LT(want.back(), 0.8 * want.front()) << "there is something to learn";
  for (std::size_t i = 0; i < want.size(); i += kWindow) {
    const double expected = mean(std::span(want).subspan(i, kWindow));
    EXPECT_NEAR(mean(std::span(got).subspan(i, kWindow)), expected, 0.03 * expected) << "from update " << i;
  }
}

class Fp8Learning : public ::testing::TestWithParam<Fp8Recipe> {};

TEST_P(Fp8Learning, FollowsFloat32WithAllWeights) {
  expect_same_curve(GetParam(), {}, 3e-3);
}

TEST_P(Fp8Learning, FollowsFloat32WithAnAdapter) {
  LoraConfig lora = adapter_on({"all-linear"});
  lora.r = 8;
  expect_same_curve(GetParam(), lora, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8Learning, ::testing::Values(Fp8Recipe::tensorwise, Fp8Recipe::blockwise));

}  // namespace
}  // namespace qtrain::testing
