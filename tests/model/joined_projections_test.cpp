// Projections of one input compute the same with joined results as with separate ones.
#include <gmock/gmock.h>

#include "model/projection_parts.h"
#include "tests/kernels/support.h"
#include "tests/model/random_model.h"

namespace qtrain::testing {
namespace {

constexpr std::int64_t kJoinedRows = 11, kJoinedInputs = 13, kJoinedRanks = 3;

/// Three layers with biases that read the same input, in f64; their parameters are contiguous or not.
class ThreeLayers {
 public:
  static constexpr std::int64_t kOuts[] = {7, 2, 5}, kWidth = 14;
  enum class Memory { contiguous, weights_apart, gradients_apart };

  ThreeLayers(Memory memory, std::vector<std::size_t> adapted = {}) {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t out = kOuts[i];
      const bool apart = memory == Memory::weights_apart && i == 1,
                 apart_grad = memory == Memory::gradients_apart && i == 2;
      own_w_[i] = w_.tensor().slice(first, out);
      if (apart) {
        std::copy_n(own_w_[i].as<double>(), own_w_[i].numel(), other_w_.tensor().as<double>());
        own_w_[i] = other_w_.tensor().slice(0, out);
      }
      layers_[i] = {
          .weight = own_w_[i],
          .bias = bias_.tensor().slice(first, out),
          .dweight = accumulate(apart_grad ? other_dw_.tensor().slice(0, out) : dw_.tensor().slice(first, out)),
          .dbias = accumulate(dbias_.tensor().slice(first, out))};
      if (std::ranges::find(adapted, i) != adapted.end())
        layers_[i].lora = {
            .a = a_.tensor().slice(static_cast<std::int64_t>(i) * kJoinedRanks, kJoinedRanks),
            .b = b_.tensor().slice(first, out),
            .da = accumulate(da_.tensor().slice(static_cast<std::int64_t>(i) * kJoinedRanks, kJoinedRanks)),
            .db = accumulate(db_.tensor().slice(first, out)),
            .scale = 0.5};
      first += out;
    }
  }
  /// Returns everything that the layers compute. `joined`: whether their results are columns of one matrix.
  std::vector<Values> run(Ctx& ctx, bool joined) {
    Array y(DType::f64, {kJoinedRows, kWidth}), dx(DType::f64, {kJoinedRows, kJoinedInputs}),
        lora_x(DType::f64, {kJoinedRows, 3 * kJoinedRanks}),
        scratch(DType::f64, {kJoinedRows * (3 * kJoinedRanks + kJoinedInputs)});
    Array parts[3], dparts[3];
    ProjectionForward f{.y_stride = joined ? kWidth : 0, .lora_x = lora_x, .x = x_, .scratch = scratch};
    ProjectionBackward b{.dy_stride = f.y_stride, .dx = store(dx), .x = x_, .lora_x = lora_x, .scratch = scratch};
    std::int64_t first = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      parts[i] = Array(DType::f64, {kJoinedRows, kOuts[i]});
      dparts[i] = parts[i];
      for (std::int64_t k = 0; k < kJoinedRows * kOuts[i]; ++k)
        dparts[i].set(k, dy_.get(k / kOuts[i] * kWidth + first + k % kOuts[i]));
      f.layers.push_back({layers_[i], joined ? columns_of(y.tensor(), first, kOuts[i]) : parts[i].tensor()});
      b.layers.push_back({layers_[i], joined ? ConstTensor(columns_of(dy_.tensor(), first, kOuts[i])) : dparts[i]});
      first += kOuts[i];
    }
    project(ctx, f);
    project_grad(ctx, b);
    if (!joined) {
      first = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::int64_t k = 0; k < kJoinedRows * kOuts[i]; ++k)
          y.set(k / kOuts[i] * kWidth + first + k % kOuts[i], parts[i].get(k));
        first += kOuts[i];
      }
    }
    std::vector<Values> all;
    for (const Array* t : {&y, &dx, &dw_, &other_dw_, &dbias_, &da_, &db_}) all.push_back(t->values());
    return all;
  }

 private:
  Array x_ = random(DType::f64, {kJoinedRows, kJoinedInputs}, 1), w_ = random(DType::f64, {kWidth, kJoinedInputs}, 2),
        bias_ = random(DType::f64, {kWidth}, 3), dy_ = random(DType::f64, {kJoinedRows, kWidth}, 4),
        a_ = random(DType::f64, {3 * kJoinedRanks, kJoinedInputs}, 5),
        b_ = random(DType::f64, {kWidth, kJoinedRanks}, 6);
  Array dw_{DType::f64, {kWidth, kJoinedInputs}}, dbias_{DType::f64, {kWidth}},
      da_{DType::f64, {3 * kJoinedRanks, kJoinedInputs}}, db_{DType::f64, {kWidth, kJoinedRanks}},
      other_w_{DType::f64, {kWidth, kJoinedInputs}}, other_dw_{DType::f64, {kWidth, kJoinedInputs}};
  Tensor own_w_[3];
  Projection layers_[3];
};

void expect_near(const Values& a, const Values& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 0;
  for (const double v : b) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * (1 + largest)) << what << " " << i;
}

TEST(JoinedProjections, GiveWhatSeparateOnesGive) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  using enum ThreeLayers::Memory;
  for (const auto memory : {contiguous, weights_apart, gradients_apart})
    for (const auto& adapted : std::vector<std::vector<std::size_t>>{{}, {0, 1, 2}, {0, 2}, {1}}) {
      ThreeLayers one(memory, adapted), two(memory, adapted);
      const auto joined = one.run(ctx, true), apart = two.run(ctx, false);
      for (std::size_t i = 0; i < joined.size(); ++i) expect_near(joined[i], apart[i], 1e-13, std::to_string(i));
    }
}

Feature with_sizes(Feature f) {
  f.config.update({{"num_attention_heads", 14}, {"num_key_value_heads", 2}, {"head_dim", 6}, {"hidden_size", 28}});
  return f;
}

std::vector<Feature> joined_features() {
  LoraConfig dropout = adapter_on({"all-linear"});
  dropout.dropout = 0.3;
  LoraConfig saved = adapter_on({"q_proj"});
  saved.modules_to_save = {"up_proj"};
  const Json qwen3{{"model_type", "qwen3"}};
  return {{"llama"},
          {"biases", {{"attention_bias", true}, {"mlp_bias", true}}},
          {"qwen2", with_sizes({"", {{"model_type", "qwen2"}}}).config},
          {"qwen3", with_sizes({"", qwen3}).config},
          {"gemma2", {{"model_type", "gemma2"}, {"query_pre_attn_scalar", 6}}},
          {"gemma3", {{"model_type", "gemma3_text"}, {"query_pre_attn_scalar", 6}}},
          {"olmo2", {{"model_type", "olmo2"}}},
          {"some_without_rotation", {{"model_type", "smollm3"}, {"no_rope_layers", {1, 0}}}},
          {"lora", qwen3, adapter_on({"q_proj", "v_proj"})},
          {"lora_dropout", {{"model_type", "qwen2"}}, dropout},
          {"one_trained_whole", qwen3, saved}};
}

class JoinedModel : public ::testing::TestWithParam<Feature> {};

TEST_P(JoinedModel, LearnsWhatASeparateOneLearns) {
  const Ragged batch(small_rows());
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const auto outcome = [&](JoinProjections join, const ExecutionChoice& choice) {
    TransformerOptions options = options_of(GetParam());
    options.join = join;
    const auto model = random_model(ctx, std::move(options), batch, choice);
    return train_step(ctx, *model, {batch, batch}, {.scale = 0.5, .dropout_seed = 7});
  };
  const Outcome apart = outcome(JoinProjections::never, {});
  for (const char* policy : {"none", "selective", "block"}) {
    const Outcome joined = outcome(JoinProjections::always, recomputing(policy));
    EXPECT_NEAR(joined.loss_sum, apart.loss_sum, 1e-12 * std::abs(apart.loss_sum));
    ASSERT_EQ(joined.grads.size(), apart.grads.size());
    for (const auto& [name, grad] : apart.grads) expect_near(joined.grads.at(name), grad, 1e-12, name);
  }
}

INSTANTIATE_TEST_SUITE_P(All, JoinedModel, ::testing::ValuesIn(joined_features()),
                         [](const auto& info) { return info.param.name; });

TEST(JoinedModel, HasTheWeightsOfAGroupSideBySide) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  TransformerOptions options = options_of(
      {"qwen2", {{"model_type", "qwen2"}, {"hidden_size", 64}, {"head_dim", 32}, {"intermediate_size", 32}}});
  options.join = JoinProjections::always;
  const auto model = planned_model(ctx, std::move(options), Ragged(small_rows()).size());
  const auto contiguous = [&](const std::string& one, const std::string& next) {
    const Param &a = *model->weights().find(one), &b = *model->weights().find(next);
    return are_contiguous(a.value, b.value) && are_contiguous(a.grad, b.grad);
  };
  const std::string attention = "model.layers.1.self_attn.", mlp = "model.layers.1.mlp.";
  EXPECT_TRUE(contiguous(attention + "q_proj.weight", attention + "k_proj.weight"));
  EXPECT_TRUE(contiguous(attention + "k_proj.weight", attention + "v_proj.weight"));
  EXPECT_TRUE(contiguous(mlp + "gate_proj.weight", mlp + "up_proj.weight"));
}

TEST(JoinedModel, NeverHasMagnitudes) {
  LoraConfig dora = adapter_on({"all-linear"});
  TransformerOptions options = options_of({"dora", Json::object(), dora});
  options.join = JoinProjections::always;
  EXPECT_TRUE(Transformer(Device{}, options).config().joins_projections);
  options.lora->dora = true;
  EXPECT_FALSE(Transformer(Device{}, options).config().joins_projections);
}

}  // namespace
}  // namespace qtrain::testing
