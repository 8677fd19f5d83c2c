// Contiguous parameters are updated together, with the same bits as separately.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "optim/table.h"

namespace qtrain {
namespace {

/// Lengths within and across blocks of 256, different decay and rates, embeddings, vectors and matrices.
std::vector<ParamSpec> specs(DType dtype) {
  const auto spec = [&](std::string name, Shape shape) {
    return ParamSpec{.name = std::move(name), .shape = shape, .dtype = dtype, .update = Update::trained};
  };
  std::vector<ParamSpec> all{spec("a", {64, 256}), spec("b", {256, 64}), spec("c", {16}),      spec("d", {48}),
                             spec("e", {64, 64}),  spec("f", {127, 64}), spec("g", {64, 128}), spec("h", {64, 64}),
                             spec("i", {64, 64}),  spec("j", {64, 64}),  spec("k", {4096})};
  for (ParamSpec& s : all) s.grad_dtype = DType::f32;
  all[2].decay = all[3].decay = Decay::no;
  all[7].learning_rate = all[8].learning_rate = 4;
  all[9].role = Role::embedding;
  return all;
}

void fill(const Tensor& t, std::size_t which, std::size_t step) {
  dispatch_float(t.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < t.numel(); ++i)
      t.as<T>()[i] = static_cast<T>(std::sin(static_cast<double>(i + 1) * (1.37 + 0.11 * static_cast<double>(which)) +
                                             static_cast<double>(step)));
  });
}

enum class Stores : std::uint8_t { one, one_each };

struct Updated {
  std::string values;  ///< of all parameters
  std::size_t passes;
};

/// After three updates.
Updated updated(const std::string& optim, DType dtype, Stores stores) {
  Ctx ctx;
  std::vector<std::unique_ptr<ParamStore>> held;
  std::vector<Param*> params;
  for (const ParamSpec& spec : specs(dtype)) {
    if (held.empty() || stores == Stores::one_each) held.push_back(std::make_unique<ParamStore>("weights"));
    params.push_back(&held.back()->declare(spec));
  }
  for (const auto& store : held) store->allocate();
  const std::string arguments = dtype == DType::bf16 ? "stochastic_rounding=true" : "";
  Optimizer optimizer(ctx, make_rule({.name = optim, .arguments = arguments, .weight_decay = 0.1}), params);
  optimizer.allocate(ctx);
  optimizer.state().initialize(ctx, 0);
  DeviceNumbers sums({}, 2);
  for (std::size_t i = 0; i < params.size(); ++i) fill(params[i]->value, i, 0);
  for (std::size_t step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < params.size(); ++i) fill(params[i]->grad, i, step);
    optimizer.send(ctx, {.learning_rate = 0.01});
    sums.clear(ctx);
    optimizer.update(ctx, sums.all());
    optimizer.set_updates(static_cast<std::int64_t>(step));
  }
  std::string bytes;
  for (const Param* p : params) bytes.append(reinterpret_cast<const char*>(p->value.data), p->value.bytes());
  return {bytes, optimizer.passes()};
}

struct JoinedCase {
  const char* optim;
  DType dtype;
  std::size_t passes;
};
class JoinedUpdates : public ::testing::TestWithParam<JoinedCase> {};

TEST_P(JoinedUpdates, GiveTheBitsOfSingleOnes) {
  const auto [optim, dtype, passes] = GetParam();
  const Updated one = updated(optim, dtype, Stores::one), each = updated(optim, dtype, Stores::one_each);
  EXPECT_TRUE(one.values == each.values);
  EXPECT_EQ(one.passes, passes);
  EXPECT_EQ(each.passes, specs(dtype).size());
}

// Updated separately: parameters with another decay or rate; with codes, the parameter after `f`, which ends within a
// block, and embeddings; rules with random numbers or shapes.
INSTANTIATE_TEST_SUITE_P(
    Optimizers, JoinedUpdates,
    ::testing::Values(JoinedCase{"adamw_torch", DType::f32, 5}, JoinedCase{"adamw_torch", DType::bf16, 11},
                      JoinedCase{"adamw_8bit", DType::f32, 7}, JoinedCase{"lion_32bit", DType::f32, 5},
                      JoinedCase{"lion_8bit", DType::f32, 7}, JoinedCase{"sgd", DType::f32, 5},
                      JoinedCase{"adafactor", DType::f32, 11}, JoinedCase{"muon", DType::f32, 9}),
    [](const auto& info) { return std::string(info.param.optim) + "_" + std::string(name_of(info.param.dtype)); });

TEST(Rates, MultiplyThatOfTheRun) {
  Ctx ctx;
  ParamStore store("weights");
  std::vector<Param*> params;
  for (const double rate : {1.0, 4.0}) {
    ParamSpec spec{.name = "w" + std::to_string(rate), .shape = {16}, .dtype = DType::f32, .update = Update::trained};
    spec.learning_rate = rate;
    params.push_back(&store.declare(std::move(spec)));
  }
  store.allocate();
  Optimizer optimizer(ctx, make_rule({.name = "sgd"}), params);
  optimizer.allocate(ctx);
  optimizer.state().initialize(ctx, 0);
  DeviceNumbers sums({}, 2);
  sums.clear(ctx);
  for (Param* p : params)
    for (std::int64_t i = 0; i < 16; ++i) p->value.as<float>()[i] = 0, p->grad.as<float>()[i] = 1;
  optimizer.send(ctx, {.learning_rate = 0.25});
  optimizer.update(ctx, sums.all());
  for (std::int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(params[0]->value.as<float>()[i], -0.25F);
    EXPECT_EQ(params[1]->value.as<float>()[i], -1.0F);
  }
}

TEST(ZeroGrads, ReachesEveryGradient) {
  Ctx ctx;
  ParamStore store("weights");
  for (ParamSpec spec : specs(DType::f32)) {
    if (spec.name == "d") spec.update = Update::frozen;
    store.declare(std::move(spec));
  }
  store.allocate();
  for (const Param& p : store.all())
    if (p.trained()) fill(p.grad, 1, 1);
  store.zero_grads(ctx);
  for (const Param& p : store.all()) {
    if (!p.trained()) continue;
    for (const float g : p.grad.span<float>()) ASSERT_EQ(g, 0) << p.spec.name;
  }
}

}  // namespace
}  // namespace qtrain
